"""Sources: what files, folders and data sets of the Hub hold, and what is counted; `documents.yaml` has samples."""

import json
import lzma
import os
import re
import sys
from pathlib import Path

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from limbeck.corpus import SourceReport, open_source
from limbeck.corpus.files import addresses, unpacking
from limbeck.corpus.files.text_files import CR_LINES, ONE_DOCUMENT
from limbeck.corpus.sources import file_sources
from limbeck.corpus.sources.file_patterns import find_sources
from limbeck.errors import CorpusError
from tests.support.streams import hub_of, read, write_packed, write_texts

#: A pattern of file names, and of each value the texts.
PATTERNS = [
    [
        "{language}.tx*",
        ["c4-de-0", ["c4-de-0.txt"]],
        ["c4-de-1", ["c4-de-1.txt"]],
        ["c4-sw-0", ["c4-sw-0.txt"]],
        ["de", ["de.txt"]],
        ["zh-Hans", ["zh-Hans.txt.xz"]],
    ],
    ["{language}/*.txt*", ["[x]", ["[x]/0.txt"]], ["sw", ["sw/0.txt", "sw/1.txt.gz"]]],
    ["{language}/", ["[x]", ["[x]/0.txt"]], ["sw", ["sw/0.txt", "sw/1.txt.gz"]]],
    ["c4-{language}-?.txt", ["de", ["c4-de-0.txt", "c4-de-1.txt"]], ["sw", ["c4-sw-0.txt"]]],
    ["c4-{language}-[[0].txt", ["de", ["c4-de-0.txt"]], ["sw", ["c4-sw-0.txt"]]],
    ["**/c4-{language}-[!1].txt", ["de", ["c4-de-0.txt"]], ["sw", ["c4-sw-0.txt"]]],
]
SAMPLES = yaml.safe_load((Path(__file__).parent / "documents.yaml").read_text(encoding="utf-8"))
TWO = ["One, first line.\nOne, second line.", "Two."]


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_documents_of_files_and_what_is_counted(tmp_path, sample):
    for name, content in sample["files"].items():
        write_packed(tmp_path / name, content)
    texts, report = read(tmp_path)
    assert (texts, report.counts) == (sample["texts"], sample.get("counts", {}))
    for place in sample.get("places", ()):
        assert [f"{tmp_path}/{place}"] in report.examples.values()
    for pattern, found in sample.get("patterns", {}).items():
        assert read(tmp_path / pattern)[0] == found


@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".parquet"])
def test_every_kind_of_file_and_compression(tmp_path, kind, compression):
    texts, report = read(write_texts(tmp_path / f"a{kind}{compression}", TWO))
    assert (texts, report.lines()) == (TWO, [])


def test_a_name_that_may_be_a_path_or_a_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "books").mkdir(parents=True)
    with pytest.raises(CorpusError, match=r"Did you mean 'data/books'\? For a Hub data set, write 'hub:data/boks'"):
        open_source("data/boks")
    assert open_source("elsewhere/boks").fingerprint()[:2] == ["hub", "elsewhere/boks"]


def test_a_long_file_without_blank_lines_is_one_document_a_line(tmp_path):
    lines = [f"line {number}" for number in range(1500)]
    texts, report = read(write_packed(tmp_path / "lines.txt", "\n".join(lines)))
    assert texts == lines
    assert list(report.counts) == ["file without blank lines, read as one document per line"]


@pytest.mark.parametrize("count", [2, 3, 999])
def test_a_short_file_without_blank_lines_is_told_with_the_way_out(tmp_path, count):
    lines = [f"line {number}" for number in range(count)]
    path = write_packed(tmp_path / "lines.txt", "\n".join(lines))
    texts, report = read(path)
    assert texts == ["\n".join(lines)]
    [note] = report.counts
    assert note.endswith("read as one document; separator: line reads one of each line")
    report = SourceReport()
    settled = [document.text for document in open_source(str(path), separator="line").documents(report)]
    assert (settled, report.counts) == (lines, {})
    assert open_source(str(path)).fingerprint() != open_source(str(path), separator="line").fingerprint()


def test_blank_lines_in_front_separate_nothing(tmp_path):
    lines = [f"line {number}" for number in range(30)]
    texts, report = read(write_packed(tmp_path / "short.txt", "\n\n" + "\n".join(lines)))
    assert (texts, report.counts) == (["\n".join(lines)], {ONE_DOCUMENT: 1})
    texts, _ = read(write_packed(tmp_path / "long.txt", "\n" + "\n".join(lines * 50)))
    assert texts == lines * 50


def test_lines_that_end_with_carriage_returns_are_told(tmp_path):
    texts, report = read(write_packed(tmp_path / "lines.txt", "a line\ranother line\r"))
    assert (texts, report.counts) == (["a line\nanother line"], {CR_LINES: 1})


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("ending", ["", "\n", "\n\n\n"])
def test_a_file_of_few_long_lines_is_told_as_a_short_one_is(tmp_path, ending, packed):
    """It is longer than the buffer, and has fewer lines than show that each is a document."""
    lines = [f"line {number} " + "word " * 1_000 for number in range(60)]
    path = write_packed(tmp_path / ("lines.txt" + (".gz" if packed else "")), "\n".join(lines) + ending)
    texts, report = read(path)
    assert (len(texts), report.counts) == (1, {ONE_DOCUMENT: 1})
    lines[30] = ""
    write_packed(path, "\n".join(lines) + ending)
    texts, report = read(path)
    assert (len(texts), report.counts) == (2, {})


@pytest.mark.parametrize("content", ["a single line", "first\n\nsecond\nof two lines", "\n\nat the end\n\n"])
def test_other_text_files_are_not_told(tmp_path, content):
    assert read(write_packed(tmp_path / "a.txt", content))[1].counts == {}


def test_blank_lines_separate_a_long_file_too_where_the_user_says_so(tmp_path):
    lines = [f"line {number}" for number in range(1500)]
    path = write_packed(tmp_path / "lines.txt", "\n".join(lines))
    report = SourceReport()
    texts = [document.text for document in open_source(str(path), separator="blank_line").documents(report)]
    assert (texts, report.counts) == (["\n".join(lines)], {})


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_progress_is_told_in_stored_bytes_also_within_a_file(tmp_path, packed):
    content = "".join(f'{{"text": "{number}"}}\n' for number in range(1000, 3500))
    first, _ = (write_packed(tmp_path / (name + (".gz" if packed else "")), content) for name in ("a.jsonl", "b.jsonl"))
    told = []
    assert len(list(open_source(str(tmp_path)).documents(SourceReport(), lambda *now: told.append(now)))) == 5000
    size = first.stat().st_size
    within = [0, 0] if packed else [1000 * 17, 2000 * 17]
    places = [0, *within, size, *(size + place for place in within), 2 * size]
    assert told == [(place, 2 * size, "bytes") for place in places]


@pytest.mark.parametrize("suffix", [".txt.gz", ".txt.xz", ".txt.zst", ".parquet", ".parquet.gz"])
def test_damaged_files_are_read_up_to_the_damage_and_counted(tmp_path, suffix):
    text = "\n\n".join(f"document {os.urandom(40).hex()}" for _ in range(5000))
    path = write_packed(tmp_path / f"a{suffix}", text)
    os.truncate(path, path.stat().st_size // 2)
    texts, report = read(path)
    assert report.counts == {"damaged file, read up to the damage": 1}
    assert suffix.startswith(".parquet") or texts[0].startswith("document")


def test_an_xz_file_of_several_streams_and_what_follows_them(tmp_path):
    one, two = (lzma.compress(text.encode()) for text in ("one\n\ntwo", "\n\nthree"))
    path = tmp_path / "a.txt.xz"
    path.write_bytes(one + bytes(8) + two + bytes(4))
    texts, report = read(path)
    assert (texts, report.lines()) == (["one", "two", "three"], [])
    path.write_bytes(one + b"no stream of xz")
    texts, report = read(path)
    assert (texts, report.counts) == (["one", "two"], {"damaged file, read up to the damage": 1})


def test_an_xz_file_that_takes_much_memory_to_unpack(tmp_path, monkeypatch):
    path = write_packed(tmp_path / "a.txt.xz", "one\n\ntwo")
    assert read(path)[0] == ["one", "two"]
    monkeypatch.setattr(unpacking, "MOST_TO_UNPACK", 2**20)
    texts, report = read(path)
    assert texts == []
    assert "Memory usage limit" in report.examples["damaged file, read up to the damage"][0]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern[0])
def test_a_pattern_of_file_names_gives_a_source_for_each_of_its_values(tmp_path, monkeypatch, pattern):
    monkeypatch.chdir(tmp_path)
    shape, *expected = pattern
    for name in ("de.txt", "zh-Hans.txt.xz", "sw/0.txt", "sw/1.txt.gz", "[x]/0.txt", "c4-de-0.txt", "c4-de-1.txt"):
        write_packed(Path(name), name)
    write_packed(Path("c4-sw-0.txt"), "c4-sw-0.txt")
    write_packed(Path("de.pdf"), "no text")
    for by in (shape, f"./{shape}", f"{tmp_path}/{shape}"):
        parts = find_sources(by)
        assert {value: sorted(read(part)[0]) for value, part in parts.items()} == dict(expected)


def test_a_pattern_of_addresses(tmp_path):
    remote = fsspec.filesystem("memory")
    for name in ("de-0", "de-1", "sw-0"):
        remote.pipe_file(f"/parts/{name}.txt", name.encode())
    parts = find_sources("memory://parts/{language}-*.txt")
    assert {value: read(part)[0] for value, part in parts.items()} == {"de": ["de-0", "de-1"], "sw": ["sw-0"]}
    remote.rm("/parts", recursive=True)


def test_the_size_of_files_whose_server_states_none_is_not_known(tmp_path, monkeypatch):
    source = open_source(str(write_packed(tmp_path / "a.txt", "text")))
    assert source.size() == 4
    monkeypatch.setattr(file_sources, "file_size", lambda _: addresses.UNKNOWN_SIZE)
    assert source.size() is None


def test_parquet_without_the_column_or_with_another_type(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": ["x"], "number": [3]}), path)
    assert read(path)[1].counts == {"row without the column 'text'": 1}
    assert read(path, "number")[1].counts == {"column 'number' that is not text": 1}
    assert read(path, "body")[0] == ["x"]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python reads it as *.txt")
def test_a_pattern_that_is_none(tmp_path):
    with pytest.raises(CorpusError, match="Cannot read the pattern"):
        open_source(f"{tmp_path}/**.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path):
    path = write_packed(tmp_path / "a.txt", "text")
    path.chmod(0)
    with pytest.raises(CorpusError, match=re.escape(f"Cannot read '{path}'")):
        read(path)


def test_file_that_the_system_refuses(tmp_path):
    source = open_source(str(write_packed(tmp_path / "a.txt", "text")))
    (tmp_path / "a.txt").unlink()
    for call in (lambda: list(source.documents(SourceReport())), source.fingerprint):
        with pytest.raises(CorpusError, match=r"Cannot read '.*a\.txt'.*No such file"):
            call()


def test_fingerprint_follows_the_files(tmp_path):
    path = write_packed(tmp_path / "a.txt", "text")
    before = open_source(str(path)).fingerprint()
    assert open_source(str(tmp_path)).fingerprint() == before == json.loads(json.dumps(before))
    path.write_text("other text")
    assert open_source(str(path)).fingerprint() != before


def test_hub_data_set_is_streamed(monkeypatch, tmp_path):
    rows = [{"body": "one"}, {"body": " "}, {"body": None}, {"body": "two"}, {"body": 3}]
    files = [
        write_packed(tmp_path / f"{number}.jsonl", "\n".join(map(json.dumps, part)))
        for number, part in enumerate((rows[:3], rows[3:4], rows[4:]))
    ]
    with monkeypatch.context() as patch:
        asked = hub_of(patch, *files[:2])
        assert read("hub:some/data:en.v1@train[:10]#abc", "body")[0] == ["one", "two"]
        assert asked == [("some/data", "en.v1", "train[:10]", "abc")]
        texts, report = read("some/data", "body")
        assert (texts, report.counts) == (["one", "two"], {"empty document": 2})
        with pytest.raises(
            CorpusError, match="no column 'text'; it has body. Name the column of the text with --text-column"
        ):
            read("some/data")
    hub_of(monkeypatch, files[2])
    assert read("some/data", "body")[1].counts == {"column 'body' that is not text": 1}


def test_a_hub_that_cannot_be_reached(monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(CorpusError, match=r"Cannot read the Hub data set 'some/data': no route\.$"):
        read("some/data")


def test_a_report_shows_two_different_examples():
    first, second = SourceReport(), SourceReport()
    for where in ("'who is it?'", "'who is it?'", "'who was it?'"):
        first.note("row cut", where)
        second.note("row cut", where)
    second.merge(first)
    assert second.lines() == ["6 x row cut (such as 'who is it?', 'who was it?')"]


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


@pytest.mark.parametrize("lines", [999, 1000])
def test_lines_that_tell_whether_a_blank_one_is_to_come(tmp_path, lines):
    written = [f"line {number}" for number in range(lines)]
    texts, _ = read(write_packed(tmp_path / "lines.txt", "\n".join(written)))
    assert texts == (["\n".join(written)] if lines == 999 else written)


def test_files_of_a_folder_are_read_as_their_paths_are_compared(tmp_path):
    for name in ("b.txt", "a-b.txt", "a/c.txt", "a/b/d.txt", "a.txt", ".hidden/e.txt", "a/.f.txt"):
        write_texts(tmp_path / name, [name])
    found = read(tmp_path)[0]
    assert found == ["a/b/d.txt", "a/c.txt", "a-b.txt", "a.txt", "b.txt"]
    assert found == [str(path) for path in sorted(Path(name) for name in found)]


def test_many_small_files_are_opened_once_and_their_folder_is_resolved_once(tmp_path, monkeypatch):
    texts = [f"Text {number}, é.\nIts end." for number in range(40)]
    for number, text in enumerate(texts):
        write_texts(tmp_path / "few" / f"{number:02d}.txt", [text])
    (tmp_path / "few" / "10 again.txt").symlink_to(tmp_path / "few" / "10.txt")
    calls = []
    for name in ("open", "resolve"):
        real = getattr(Path, name)

        def counted(path, *given, real=real, name=name, **named):
            calls.append(name)
            return real(path, *given, **named)

        monkeypatch.setattr(Path, name, counted)
    assert read(tmp_path / "few")[0] == texts
    assert calls.count("open") == len(texts) and calls.count("resolve") <= 4
    places = [place for place, *_ in open_source(str(tmp_path / "few")).fingerprint()[-1]]
    assert places == [str(tmp_path.resolve() / "few" / f"{number:02d}.txt") for number in range(40)]
