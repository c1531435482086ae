import gzip
import json
import os
import re
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limbeck.corpus import Document, SourceReport, open_source
from limbeck.errors import CorpusError
from tests.support.streams import write_packed


def read(name, text_column="text"):
    report = SourceReport()
    documents = list(open_source(str(name), text_column).documents(report))
    return [document.text for document in documents], report


CONTENTS = {
    ".txt": b"One, first line.\nOne, second line.\n\n\n \nTwo.\n",
    ".jsonl": b'{"text": "One, first line.\\nOne, second line."}\n\n{"text": "Two.", "n": {"a": [1]}}\n',
}


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".parquet"])
def test_every_kind_of_file_and_compression(tmp_path, kind, compression):
    if kind == ".parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": [1, 2], "text": ["One, first line.\nOne, second line.", "Two."]}), sink)
        content = sink.getvalue().to_pybytes()
    else:
        content = CONTENTS[kind]
    path = tmp_path / f"a{kind}{compression}"
    write_packed(path, content)
    texts, report = read(path)
    assert texts == ["One, first line.\nOne, second line.", "Two."]
    assert report.lines() == []


def test_markdown_is_one_document_of_its_prose(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# A title\n\nSome words that\nare wrapped.\n\n```python\nx = 1\n```\n\nAnd **more** words.\n")
    assert read(path)[0] == ["Some words that are wrapped.\nAnd more words."]


def test_a_folder_is_read_in_order_and_other_files_are_counted(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "b" / "2.txt").write_text("second")
    (tmp_path / "a.jsonl").write_text('{"text": "first"}')
    (tmp_path / "c.txt").write_text("third")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden" / "x.txt").write_text("never")
    (tmp_path / "b" / "loop").symlink_to(tmp_path, target_is_directory=True)
    texts, report = read(tmp_path)
    assert texts == ["first", "second", "third"]
    assert report.counts == {"file of another kind, passed over": 1}
    assert read(tmp_path / "**" / "*.txt")[0] == ["second", "third"]
    assert read(tmp_path / "[ac].*")[0] == ["first", "third"]


def test_a_name_that_may_be_a_path_or_a_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "books").mkdir()
    with pytest.raises(CorpusError, match=r"Did you mean 'data/books'\? For the Hub's data set write 'hub:data/boks'"):
        open_source("data/boks")
    assert open_source("elsewhere/boks").fingerprint()[:2] == ["hub", "elsewhere/boks"]


def test_a_long_file_without_blank_lines_is_one_document_a_line(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"line {number}\n" for number in range(1500)))
    texts, report = read(path)
    assert texts == [f"line {number}" for number in range(1500)]
    assert list(report.counts) == ["file without blank lines, read as one document a line"]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_progress_is_told_in_stored_bytes_also_within_a_file(tmp_path, packed):
    content = b"".join(b'{"text": "%d"}\n' % number for number in range(1000, 3500))
    first, second = (tmp_path / (name + (".gz" if packed else "")) for name in ("a.jsonl", "b.jsonl"))
    for path in (first, second):
        path.write_bytes(gzip.compress(content) if packed else content)
    told = []
    assert len(list(open_source(str(tmp_path)).documents(SourceReport(), lambda *now: told.append(now)))) == 5000
    size = first.stat().st_size
    within = [0, 0] if packed else [1000 * 17, 2000 * 17]
    places = [0, *within, size, *(size + place for place in within), 2 * size]
    assert told == [(place, 2 * size, "bytes") for place in places]


def test_bad_lines_are_counted_with_their_places_and_do_not_stop_the_rest(tmp_path):
    path = tmp_path / "bad.jsonl"
    lines = [
        b'{"text": "good"}',
        b'{"text": "cut off',
        b'{"body": "elsewhere"}',
        b'["text"]',
        b'{"text": null}',
        b'{"text": ["a", "list"]}',
        b'{"text": "   "}',
        b'{"text": "bad \xff byte"}',
        b'{"text": "lone \\ud800 surrogate, nul \\u0000."}',
        b"[" * 100_000,
        b'{"text": ' + b"1" * 5000 + b"}",
        b'{"text": "last"}',
    ]
    path.write_bytes(b"\r\n".join(lines))
    texts, report = read(path)
    assert texts == ["good", "bad � byte", "lone � surrogate, nul  .", "last"]
    assert report.counts == {
        "line of invalid JSON": 3,
        "row without the column 'text'": 1,
        "JSON line that is not an object": 1,
        "empty document": 2,
        "column 'text' that is not text": 1,
        "line with bytes that are not UTF-8": 1,
        "document with control characters, replaced": 1,
    }
    assert report.examples["line of invalid JSON"][0] == f"{path}:2"
    assert report.examples["row without the column 'text'"] == [f"{path}:3, which has body"]


@pytest.mark.parametrize("suffix", [".txt.gz", ".txt.zst", ".parquet", ".parquet.gz"])
def test_damaged_files_are_read_up_to_the_damage_and_counted(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    text = "\n\n".join(f"document {os.urandom(40).hex()}" for _ in range(5000)).encode()
    write_packed(path, text)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    texts, report = read(path)
    assert report.counts == {"damaged file, read up to the damage": 1}
    assert suffix.startswith(".parquet") or texts[0].startswith("document")


def test_parquet_without_the_column_or_with_another_type(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": ["x"], "number": [3]}), path)
    assert read(path)[1].counts == {"row without the column 'text'": 1}
    assert read(path, "number")[1].counts == {"column 'number' that is not text": 1}
    assert read(path, "body")[0] == ["x"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{folder}/artcles.txt", "There is no file.*Did you mean '.*articles.txt'"),
        ("{folder}/nothing-*.txt", "No file matches"),
        pytest.param(
            *("{folder}/**.txt", "Cannot read the pattern"),
            marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python reads it as *.txt"),
        ),
        ("{folder}/empty", "holds no file of a kind that is read: .jsonl"),
        ("{folder}/a.docx", "is not of a kind that is read"),
        ("installed-doc", "Did you mean 'installed-docs'"),
        ("installed-docs:{folder}/none", "is not a folder of Python packages"),
        ("hub:no/such name", "is not the name of a Hub data set"),
        ("nul\0", "There is no file"),
        ("x" * 5000, "There is no file"),
    ],
)
def test_sources_that_cannot_be_meant(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "articles.txt").write_text("text")
    (tmp_path / "a.docx").write_text("text")
    with pytest.raises(CorpusError, match=message) as caught:
        open_source(name.format(folder=tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("text")
    path.chmod(0)
    with pytest.raises(CorpusError, match=re.escape(f"Cannot read '{path}'")):
        read(path)


def test_file_that_the_system_refuses(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("text")
    source = open_source(str(path))
    path.unlink()
    with pytest.raises(CorpusError, match=r"Cannot read '.*a\.txt'.*No such file"):
        list(source.documents(SourceReport()))
    with pytest.raises(CorpusError, match=r"Cannot read '.*a\.txt'"):
        source.fingerprint()


def test_fingerprint_follows_the_files(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("text")
    before = open_source(str(path)).fingerprint()
    assert open_source(str(tmp_path)).fingerprint() == before
    path.write_text("other text")
    assert open_source(str(path)).fingerprint() != before
    json.dumps(before)


ROWS = [{"body": "one"}, {"body": " "}, {"body": None}, {"body": "two"}]


def hub_of(monkeypatch, folder, shards):
    """Let the Hub have one data set, in files of this machine; return what it is asked."""
    import datasets

    files = [folder / f"hub-{number}.jsonl" for number in range(len(shards))]
    for file, rows in zip(files, shards, strict=True):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = []
    load_dataset = datasets.load_dataset

    def load(name, config, **options):
        asked.append((name, config, options))
        options.pop("revision")
        return load_dataset("json", data_files=list(map(str, files)), **{**options, "split": "train"})

    monkeypatch.setattr(datasets, "load_dataset", load)
    return asked


def test_hub_data_set_is_streamed(monkeypatch, tmp_path):
    asked = hub_of(monkeypatch, tmp_path, [ROWS[:3], ROWS[3:]])
    assert read("hub:some/data:en.v1@train[:10]#abc", "body")[0] == ["one", "two"]
    assert asked[0][:2] == ("some/data", "en.v1")
    texts, report = read("some/data", "body")
    assert texts == ["one", "two"]
    assert report.counts == {"empty document": 2}
    with pytest.raises(CorpusError, match="no column 'text': set text_column to one of body"):
        read("some/data")
    monkeypatch.undo()
    hub_of(monkeypatch, tmp_path, [[{"body": 3}]])
    assert read("some/data", "body")[1].counts == {"column 'body' that is not text": 1}


def test_a_hub_that_cannot_be_reached(monkeypatch):
    import datasets

    def refuse(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(CorpusError, match=r"Cannot read the Hub data set 'some/data': no route$"):
        read("some/data")


def test_report_keeps_few_examples_and_merges():
    first, second = SourceReport(), SourceReport()
    for number in range(9):
        first.note("bad", f"a:{number}")
    first.note("bad", "never", count=0)
    second.note("bad", "b:1", count=2)
    second.note("worse", "b:2", count=1000)
    second.merge(first)
    assert second.counts == {"bad": 11, "worse": 1000}
    assert second.examples["bad"] == ["b:1", "a:0", "a:1", "a:2", "a:3"]
    assert second.lines() == ["1,000 x worse (such as b:2)", "11 x bad (such as b:1, a:0)"]
    assert SourceReport.from_dict(json.loads(json.dumps(second.to_dict()))) == second


def test_document_body_and_key():
    document = Document("A summary.\nThe body.\nMore.", "A summary.")
    assert document.body == "The body.\nMore."
    assert Document("alone").body == "alone"
    assert document.key == Document(document.text).key != Document("alone").key
