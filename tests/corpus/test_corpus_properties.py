"""Any bytes as a file of text or of JSON lines: what is built is what a plain reader of the same bytes gives.

Any bytes under any name: a corpus, with every loss counted, or one line; never anything else.

The reference reads the whole file at once, with nothing of the package: it decodes, splits, cleans and leaves out
repeats as docs/corpora.md says.
"""

import io
import json
import re
import tempfile
import unicodedata
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limbeck.corpus.files.text_files import CR_LINES, ONE_DOCUMENT
from limbeck.errors import CorpusError
from tests.support.corpora import TOKENIZER, decode
from tests.support.streams import build_rows, build_text, packed, read, stream, take

KINDS = (".txt", ".jsonl", ".parquet", ".md", ".rst")
usual = {"deadline": None, "suppress_health_check": list(HealthCheck)}
quick = settings(max_examples=40, derandomize=True, **usual)

BAD_BYTES = "line with bytes that are not UTF-8"
CONTROLS = "document whose control characters were replaced"
EMPTY = "empty document"
NO_TEXT = "file not in UTF-8, skipped"
REPEATED = "document that repeats another"
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")

signs = st.sampled_from("ab \t\n\n\r.é日\x85\u2028\ufeff\0\x1b\x7f`*[]():|#-_<>{}\"'\\")
pieces = st.one_of(
    st.text(signs, max_size=30).map(str.encode),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"one text", b"one text", b"\n\n", b"\r\n", b"\n \n"]
    ),
    st.binary(max_size=12),
)
contents = st.lists(pieces, max_size=12).map(b"".join)
values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
texts = st.text(signs, max_size=20) | st.text(max_size=20) | st.sampled_from(["one text", "\ud800", "a\udcffb"])
lines = st.one_of(
    texts.map(lambda text: json.dumps({"text": text}).encode()),
    texts.map(lambda text: json.dumps({"text": text, "more": 1}, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    values.map(lambda value: json.dumps({"text": value}).encode()),
    values.map(lambda value: json.dumps(value).encode()),
    st.integers(1, 4000).map(lambda depth: b'{"text":' + b"[" * depth),
    st.binary(max_size=10),
    st.just(b""),
)
json_contents = st.lists(lines, max_size=10).map(b"\n".join)
any_contents = contents | json_contents | st.binary(min_size=2000, max_size=5000)


class Expected(NamedTuple):
    """What a file holds: its documents in order, repeats included, and what is counted."""

    documents: list[str]
    counts: dict[str, int]


def is_no_text(content):
    """Sixteen bytes that no text has, and a tenth of all; or sixteen NULs; or the mark of a wide encoding."""
    controls = sum((byte < 32 and byte not in b"\t\n\v\f\r\x1b") or byte == 127 for byte in content)
    strange = controls + content.decode(errors="replace").count("\ufffd")
    return content.startswith(WIDE_MARKS) or content.count(0) >= 16 or strange >= max(16, len(content) / 10)


def cleaned(text):
    """The text as a corpus has it, and whether a character was taken out of it."""
    unix = re.sub("\r\n?", "\n", text)
    shown = {"Cs": lambda _: "\ufffd", "Cc": lambda character: character if character in "\t\n" else " "}
    kept = unix.replace("\ufeff", "")
    found = "".join(shown.get(unicodedata.category(character), str)(character) for character in kept)
    return found.strip(), found != unix


def split_lines(content, counts):
    found = []
    for raw in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        text = raw.decode(errors="replace")
        if text.encode("utf-8", "surrogatepass") != raw:
            counts[BAD_BYTES] = counts.get(BAD_BYTES, 0) + 1
        found.append(text.rstrip("\r"))
    return found


def add(text, found):
    clean, changed = cleaned(text)
    if not clean:
        found.counts[EMPTY] = found.counts.get(EMPTY, 0) + 1
        return
    if changed:
        found.counts[CONTROLS] = found.counts.get(CONTROLS, 0) + 1
    found.documents.append(clean)


def expected_text(content):
    """Documents between blank lines; of a paragraph both ends are bare."""
    found = Expected([], {})
    paragraphs = []
    lines = list(split_lines(content, found.counts))
    with_text = [number for number, line in enumerate(lines) if line.strip()]
    # Several lines in a row, and no other lines with text.
    if len(with_text) > 1 and with_text[-1] - with_text[0] + 1 == len(with_text):
        found.counts[ONE_DOCUMENT] = 1
    if len(with_text) == 1 and "\r" in lines[with_text[0]].strip():
        found.counts[CR_LINES] = 1
    for line in [*lines, ""]:
        if paragraph := line.strip():
            paragraphs.append(paragraph)
        elif paragraphs:
            add("\n".join(paragraphs), found)
            paragraphs = []
    return found


def expected_json(content):
    """The `text` of every line that is an object and has one."""
    found = Expected([], {})
    for line in split_lines(content, found.counts):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            kind = "line of invalid JSON"
        else:
            kind = (
                "JSON line that is not an object" if not isinstance(row, dict)
                else "row without the column 'text'" if "text" not in row
                else EMPTY if row["text"] is None
                else "" if isinstance(row["text"], str)
                else "column 'text' that is not text"
            )  # fmt: skip
            if not kind:
                add(row["text"], found)
        if kind:
            found.counts[kind] = found.counts.get(kind, 0) + 1
    return found


def expected_of(content, read):
    if not content:
        return Expected([], {"empty file": 1})
    return Expected([], {NO_TEXT: 1}) if is_no_text(content) else read(content)


@contextmanager
def placed(name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        yield path


def built(build, path, **options):
    """The corpus of a file, or the error that refuses it in one line."""
    try:
        return build(path.parent / "cache", TOKENIZER, path, **options)
    except CorpusError as error:
        assert len(str(error)) < 2000
        return error


def check(name, content, expected):
    """Reading gives the documents, repeats included, and every case is counted; building keeps each document once."""
    unique = list(dict.fromkeys(expected.documents))
    counts = dict(expected.counts)
    if repeated := len(expected.documents) - len(unique):
        counts[REPEATED] = repeated
    with placed(name, content) as path:
        texts, report = read(path)
        assert (texts, report.counts) == expected
        corpus = built(build_text, path, length=4000, held_out=0)
        if isinstance(corpus, CorpusError):
            assert unique == []
            assert all(f"{count:,} x {kind}" in str(corpus) for kind, count in counts.items())
            return
        assert [decode(TOKENIZER, ids) for ids in corpus.train["input_ids"]] == unique
        assert corpus.manifest["documents"] == len(unique)
        assert corpus.manifest["characters"] == sum(map(len, unique))
        assert corpus.report.counts == counts


@quick
@given(contents)
def test_text_is_read_and_built_as_a_plain_reader_reads_it(content):
    check("a.txt", content, expected_of(content, expected_text))


@quick
@given(json_contents)
def test_json_lines_are_read_and_built_as_a_plain_reader_reads_them(content):
    check("a.jsonl", content, expected_of(content, expected_json))


@quick
@given(st.binary(min_size=1, max_size=400))
def test_any_bytes_under_any_name_are_ours_to_refuse(content):
    blank = not content.decode(errors="replace").removeprefix("\ufeff").strip()
    for name in ("a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.zst", "a.parquet"):
        with placed(name, content) as path:
            found, report = read(path)
        assert found or report.counts or blank


@st.composite
def parquet_files(draw):
    """Parquet with a column of text or of something else, with some bytes changed, cut off or added."""
    column = draw(
        st.sampled_from(
            [
                pa.array(["one text", "another", None, "", "a third \x01"]),
                pa.array(["one text", "another"] * 50).dictionary_encode(),
                pa.array([b"raw", b"\xff"]),
                pa.array([["a", "list"], []]),
                pa.array([{"a": 1}]),
                pa.array([], pa.string()),
            ]
        )
    )
    sink = io.BytesIO()
    pq.write_table(pa.table({draw(st.sampled_from(["text", "body"])): column}), sink, row_group_size=3)
    content = bytearray(sink.getvalue())
    for _ in range(draw(st.integers(0, 3))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)) | st.just(len(content)))]) + draw(st.binary(max_size=3))


@st.composite
def files(draw):
    """A name and a content; packed as the name says, or not, and then perhaps cut off or changed."""
    kind = draw(st.sampled_from(KINDS))
    content = draw(parquet_files() if kind == ".parquet" and draw(st.booleans()) else any_contents)
    packing = draw(st.sampled_from(["", ".gz", ".zst"]))
    if draw(st.integers(0, 4)):
        content = packed(packing, content)
    if packing and content and draw(st.booleans()):
        content = content[: draw(st.integers(0, len(content)))] + draw(st.binary(max_size=4))
    return f"a{kind}{packing}", content


def check_corpus(corpus):
    """A corpus holds clean text in blocks that the settings allow."""
    for ids in (*corpus.train["input_ids"], *corpus.held_out["input_ids"]):
        assert 3 <= len(ids) <= 24
        assert max(ids) < len(TOKENIZER)
    for document in corpus.held_out_documents():
        assert document.text == document.text.strip() != ""
        assert not [c for c in document.text if unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n"]
    assert all(line.isprintable() for line in corpus.report.lines())


def build(name, content):
    with placed(name, content) as path:
        corpus = built(build_text, path, held_out=0.3)
        if not isinstance(corpus, CorpusError):
            check_corpus(corpus)


def read_in_stream(name, content):
    def batches_again(*where, **options):
        corpus = stream(*where, **options)
        whole = take(corpus, 9, batch_size=2)
        return corpus, whole[6:], take(corpus, 3, state=whole[5][1], batch_size=2)

    with placed(name, content) as path:
        found = built(batches_again, path, held_out=0.3, shuffle_buffer=8)
        if not isinstance(found, CorpusError):
            corpus, batches, again = found
            check_corpus(corpus)
            assert batches == again


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("check", [build, read_in_stream])
def test_any_file_is_built_or_refused_in_one_line(check, count):
    settings(max_examples=count, **usual)(given(files())(lambda file: check(*file)))()


@settings(max_examples=60, **usual)
@given(st.sampled_from([".json", ".jsonl", ".csv", ".tsv", ".parquet"]), any_contents | parquet_files())
def test_any_labelled_file_is_built_or_refused_in_one_line(kind, content):
    with placed(f"a{kind}", content) as path:
        built(build_rows, path, length=24)
