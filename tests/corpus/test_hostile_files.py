"""Files made to break readers: bounded memory, bounded output, a counted note or one line."""

import gzip
import io
import json
import lzma
import os
import tarfile
import tracemalloc
import zlib
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limbeck.corpus import SourceReport, open_source
from limbeck.corpus.files import file_readers, limits, lines
from limbeck.corpus.files.file_readers import read_file
from limbeck.corpus.messages import safe_name
from limbeck.corpus.text import documents
from limbeck.corpus.text.cursor import Cursor
from limbeck.errors import CorpusError
from tests.support.streams import packed, read, write_packed, write_texts

NOT_TEXT = "file not in UTF-8, skipped"
DAMAGED = "damaged file, read up to the damage"


def measured(path):
    """The number of characters in a file, the kinds of cases that were counted, and the peak of memory in bytes."""
    tracemalloc.start()
    report = SourceReport()
    characters = sum(len(document.text) for document in open_source(str(path)).documents(report))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return characters, set(report.counts), peak


def write_bytes(path, content):
    path.write_bytes(content)
    return path


def archive():
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        entry = tarfile.TarInfo("../../outside.txt")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"hello"))
    return sink.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        np.random.default_rng(0).bytes(2000),
        np.random.default_rng(1).bytes(500_000),
        b"\x7fELF" + b"\0" * 200 + b"text in a program" * 50,
        b"\x89PNG\r\n\x1a\n" + np.random.default_rng(2).bytes(3000),
        "text without a mark, in sixteen bits".encode("utf-16-le"),
        "text".encode("utf-16"),
        "Кодировка, которая не UTF-8".encode("koi8-r"),
        gzip.compress(b"text " * 1000),
        archive(),
    ],
    ids=["random", "much random", "program", "picture", "utf-16", "utf-16 with its mark", "koi8", "gzip", "tar"],
)
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".md", ".txt.gz"])
def test_binary_files_are_no_text_whatever_their_name(tmp_path, content, kind):
    texts, report = read(write_packed(tmp_path / f"a{kind}", content))
    assert (texts, report.counts) == ([], {NOT_TEXT: 1})
    assert [file.name for file in tmp_path.parent.rglob("*") if "outside" in file.name] == []


def test_text_with_a_few_bad_bytes_or_in_other_scripts_is_text(tmp_path):
    write_packed(tmp_path / "0.txt", "Die Straße führt nach Köln und weiter in den Süden.\n".encode("latin-1") * 50)
    write_packed(tmp_path / "1.txt", "日本語の文章です。\n" * 9000)
    write_packed(tmp_path / "2.txt", b"one \0 two\n" * 9)
    texts, report = read(tmp_path)
    assert len(texts) == 9001 + 1
    assert NOT_TEXT not in report.counts
    assert report.counts["line with bytes that are not UTF-8"] == 50


def test_text_that_becomes_binary_is_read_up_to_there(tmp_path):
    good = "".join(f"line {number} of good text\n\n" for number in range(40_000))
    (tmp_path / "a.txt").write_bytes(good.encode() + np.random.default_rng(0).bytes(400_000))
    texts, report = read(tmp_path / "a.txt")
    assert 30_000 < len(texts) <= 40_001
    assert report.counts[DAMAGED] == 1
    assert "binary from here on" in report.examples[DAMAGED][0]


def test_the_limits_bound_the_memory_of_a_reader():
    assert limits.LONGEST_LINE <= 2**24 and limits.LONGEST_DOCUMENT <= 4_000_000


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_LINE", 1000)
    monkeypatch.setattr(limits, "LONGEST_DOCUMENT", 5000)


@pytest.mark.usefixtures("small_limits")
def test_long_lines_are_cut_in_text_and_passed_over_in_tables(tmp_path):
    words = " ".join(f"wörd{number}" for number in range(3000))
    (tmp_path / "a.txt").write_text(f"before\n\n{words}\n\nafter")
    texts, report = read(tmp_path / "a.txt")
    assert (texts[0], texts[-1]) == ("before", "after")
    assert all(len(text) <= 5000 for text in texts)
    # Nothing is lost, not even the letters that the bound falls into.
    assert "".join("".join(texts[1:-1]).split()) == "".join(words.split())
    assert report.counts[lines.CUT_LINE] == 1
    assert "line with bytes that are not UTF-8" not in report.counts
    rows = [json.dumps({"text": text}) for text in ("first", words, "last")]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    texts, report = read(tmp_path / "a.jsonl")
    assert texts == ["first", "last"]
    assert report.counts == {lines.LONG_LINE: 1}
    assert report.examples[lines.LONG_LINE] == [f"{tmp_path}/a.jsonl:2"]


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("documents_before", range(1, 5))
def test_reading_on_within_a_long_text_reports_it_once(tmp_path, monkeypatch, kind, documents_before):
    monkeypatch.setattr(limits, "LONGEST_DOCUMENT", 500)
    long_text = " ".join(f"word{number}" for number in range(150))
    texts = [long_text, "short", long_text]
    if kind == ".csv":
        path = write_packed(tmp_path / "a.csv", "\n".join(["text", *texts]))
    else:
        path = write_texts(tmp_path / f"a{kind}", texts)
    whole_report = SourceReport()
    whole = list(read_file(path, "text", whole_report, Cursor()))
    assert documents_before < len(whole) and whole_report.counts[documents.CUT_DOCUMENT] == 2

    cursor = Cursor()
    report = SourceReport()
    first = list(islice(read_file(path, "text", report, cursor), documents_before))
    report_of_rest = SourceReport()
    rest = list(read_file(path, "text", report_of_rest, cursor))
    report.merge(report_of_rest)
    assert first + rest == whole
    assert report.counts == whole_report.counts


@pytest.mark.usefixtures("small_limits")
def test_long_documents_are_cut_between_words(tmp_path):
    words = [f"word{number}" for number in range(3000)]
    pq.write_table(pa.table({"text": ["short", " ".join(words), "last"]}), tmp_path / "a.parquet")
    texts, report = read(tmp_path / "a.parquet")
    assert (texts[0], texts[-1]) == ("short", "last")
    assert " ".join(texts[1:-1]).split() == words
    assert report.counts == {documents.CUT_DOCUMENT: 1}
    (tmp_path / "a.txt").write_text("\n".join(words))
    texts, report = read(tmp_path / "a.txt")  # Words as lines, fewer than are looked at to tell the layout.
    assert "\n".join(texts).split() == words


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
def test_a_line_without_end_in_bounded_memory(tmp_path, kind):
    path = write_packed(tmp_path / f"a{kind}", b"some words " * 1_000_000)
    characters, counted, peak = measured(path)
    assert peak < 2**21 < path.stat().st_size / 5
    assert characters > 10_000_000 if kind == ".txt" else characters == 0
    layout = "file without blank lines, read as one document per line"
    assert counted == ({lines.CUT_LINE, layout} if kind == ".txt" else {lines.LONG_LINE})


@pytest.mark.parametrize("kind", [".txt.gz", ".txt.xz", ".jsonl.zst", ".parquet.zst", ".md.gz"])
@pytest.mark.parametrize("filler", [b"\n", b"a word "])
def test_compressed_bombs(tmp_path, kind, filler, monkeypatch):
    monkeypatch.setattr(limits, "EXPANSION_FREE", 2**17)
    content = filler * (2**19 // len(filler))
    path = write_packed(tmp_path / f"a{kind}", content)
    assert len(content) > 300 * path.stat().st_size
    texts, report = read(path)
    assert report.counts[DAMAGED] == 1
    assert "more than 200 times its size" in report.examples[DAMAGED][0]
    assert sum(map(len, texts)) < 2**18


def test_a_parquet_dictionary_that_names_one_text_again_and_again(tmp_path):
    text = "a long text " * 20_000
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array([text]))
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    characters, counted, peak = measured(tmp_path / "a.parquet")
    assert counted == {DAMAGED}
    assert characters < 2 * limits.EXPANSION_FREE
    assert peak < 50_000_000


def test_the_size_of_a_large_file_is_asked_for_once(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {number}"}) + "\n" for number in range(20)))
    asked = []
    monkeypatch.setattr(limits, "EXPANSION_FREE", 10)
    monkeypatch.setattr(file_readers.addresses, "file_size", lambda path: asked.append(path) or path.stat().st_size)
    assert len(list(read_file(path, "text", SourceReport(), Cursor()))) == 20
    assert len(asked) == 1


def test_parquet_strings_that_are_not_utf8(tmp_path):
    raw = pa.array([b"good", b"bad \xff byte", None], pa.binary())
    strings = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    pq.write_table(pa.table({"text": strings}), tmp_path / "a.parquet")
    texts, report = read(tmp_path / "a.parquet")
    assert texts == ["good", "bad \ufffd byte"]
    assert report.counts == {"row with bytes that are not UTF-8": 1, "empty document": 1}


def test_deep_json_and_column_names_that_are_attacks(tmp_path):
    rows = [
        '{"text": ' + "[" * 200_000 + "]" * 200_000 + "}",
        '{"text": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
        '{"text": ' + "1" * 5000 + "}",
        json.dumps({"\x1b[31m\n" + "x" * 100_000: 1}),
        '{"text": "good"}',
    ]
    texts, report = read(write_packed(tmp_path / "a.jsonl", "\n".join(rows)))
    assert texts == ["good"]
    assert report.counts == {"line of invalid JSON": 3, "row without the column 'text'": 1}
    for line in report.lines():
        assert line.isprintable()
        assert len(line) < 1000


def test_what_is_no_ordinary_file(tmp_path):
    folder = write_packed(tmp_path / "folder" / "good.txt", "good").parent
    os.mkfifo(folder / "pipe.txt")
    (folder / "broken.txt").symlink_to(tmp_path / "nothing")
    (folder / "itself.txt").symlink_to(folder / "itself.txt")
    (folder / "too long").symlink_to("y" * 300)
    (folder / "too long.txt").symlink_to("y" * 300)
    (folder / "archive.tar.gz").write_bytes(gzip.compress(archive()))
    texts, report = read(folder)
    assert texts == ["good"]
    assert report.counts == {"file of another kind, skipped": 6}
    with pytest.raises(CorpusError, match=r"pipe\.txt' is not a regular file"):
        read(folder / "pipe.txt")
    with pytest.raises(CorpusError, match="There is no file"):
        read(folder / "itself.txt")


def test_folders_within_folders_without_end(tmp_path):
    folder = tmp_path
    for _ in range(6):
        folder = folder / "d"
        folder.mkdir()
        (folder / "up").symlink_to(tmp_path, target_is_directory=True)
        (folder / "here").symlink_to(".", target_is_directory=True)
    (folder / "a.txt").write_text("found once")
    assert read(tmp_path)[0] == ["found once"]


def test_file_names_that_are_attacks_stay_on_one_line(tmp_path):
    name = "a\n\x1b[2J\u202eevil.txt"
    (tmp_path / name).write_bytes(b"\0" * 100)
    _, report = read(tmp_path)
    assert report.lines()[0].isprintable()
    with pytest.raises(CorpusError):
        read(tmp_path / f"{name}x")


SMALL = "\n\n".join(f"Document {number} says größer. It has two sentences." for number in range(60))


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("kind", [".txt.gz", ".txt.xz", ".md.gz"])
def test_small_cut_archives_are_read_to_the_last_byte_before_the_cut(tmp_path, kind, part):
    path = write_packed(tmp_path / f"a{kind}", SMALL)
    packed = path.read_bytes()[: int(path.stat().st_size * part)]
    path.write_bytes(packed)
    unpacking = lzma.LZMADecompressor() if kind.endswith(".xz") else zlib.decompressobj(31)
    there = unpacking.decompress(packed).decode(errors="ignore")
    texts, report = read(path)
    words = "\n\n".join(texts).split()
    assert words == there.split()[: len(words)] and SMALL.startswith(there)
    assert len(words) >= len(there.split()) - (2 if kind == ".md.gz" else 0), "a heading is no prose"
    assert report.counts == {DAMAGED: 1}


def cursor_behind(path, count):
    """The cursor behind the first documents of a file."""
    cursor = Cursor()
    list(islice(read_file(path, "text", SourceReport(), cursor), count))
    return cursor


@pytest.mark.parametrize("kind", [".gz", ".xz", ".zst"])
def test_blocks_before_damage_in_the_middle_are_read(tmp_path, kind):
    texts = [np.random.default_rng(number).bytes(30).hex() for number in range(9000)]
    content = bytearray(packed(kind, "\n\n".join(texts).encode()))
    middle = len(content) // 2
    content[middle:] = b"\xff" * (len(content) - middle)
    path = write_bytes(tmp_path / f"a.txt{kind}", content)
    documents_read, report = read(path)
    assert report.counts[DAMAGED] == 1
    # An archive may say some bytes later that it is damaged, or lose a block of 128 KiB.
    most_lost = 2**17 // len(texts[0])
    sure = documents_read[: len(texts) // 2 - most_lost]
    assert sure
    assert sure == texts[: len(sure)]

    # Reading on from any place gives the same to the last document.
    done = len(sure) // 2
    cursor = cursor_behind(path, done)
    again = Cursor(position=cursor.position, line=cursor.line)
    rest = [document.text for document in read_file(path, "text", SourceReport(), again)]
    assert rest == documents_read[done:]


@pytest.mark.parametrize("garbage", [b"garbage", b"\0\0\0garbage", b"\x1f\x8b\x08\0"])
def test_a_whole_archive_with_something_behind_it_is_read(tmp_path, garbage):
    path = write_packed(tmp_path / "a.txt.gz", SMALL)
    whole = path.read_bytes()
    texts, report = read(write_bytes(path, whole + garbage))
    assert (texts, report.counts) == (SMALL.split("\n\n"), {DAMAGED: 1})
    assert read(write_bytes(path, whole + b"\0" * 99 + whole))[0] == [
        *SMALL.split("\n\n")[:-1],
        SMALL.split("\n\n")[-1] + SMALL.split("\n\n")[0],
        *SMALL.split("\n\n")[1:],
    ]


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.jsonl.gz", '{"text": "one", "label": 1}\n{"text": "two", "label": 1}\n{"text": "three", "label": 1', 2),
        ("a.tsv.gz", "text\tlabel\none\t1\ntwo\t12", 1),
        ("a.csv.gz", 'label,text\n1,one\n1,"two\n and mo', 1),
    ],
)
def test_the_row_that_damage_cuts_is_no_row(tmp_path, name, content, rows):
    cut = zlib.compressobj(wbits=31)
    path = write_bytes(tmp_path / name, cut.compress(content.encode()) + cut.flush(zlib.Z_SYNC_FLUSH))
    report = SourceReport()
    found = [row.values["text"] for row in file_readers.read_rows(path, report)]
    assert (found, report.counts) == (["one", "two"][:rows], {DAMAGED: 1})


def test_a_long_name_is_shown_by_its_beginning_and_its_end():
    shown = safe_name("a" * 500 + "middle" * 100 + "b" * 500 + ".txt")
    assert len(shown) == 301 and shown.startswith("aaa") and shown.endswith("bbb.txt")
    assert safe_name("a\nb" * 30) == "a\\nb" * 30
