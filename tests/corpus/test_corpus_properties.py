"""Any bytes as a file of text or of JSON lines: what is built is what a plain reader of the same bytes gives.

The reference reads the whole file at once, with nothing of the package: it decodes, splits, cleans and leaves out
repeats as docs/corpora.md says.
"""

import json
import re
import tempfile
import unicodedata
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limbeck.corpus import CorpusSettings, SourceReport, build_corpus, open_source
from limbeck.errors import CorpusError
from tests.support.corpora import TOKENIZER, decode

quick = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

BAD_BYTES = "line with bytes that are not UTF-8"
CONTROLS = "document with control characters, replaced"
EMPTY = "empty document"
NO_TEXT = "file not in UTF-8, passed over"
REPEATED = "document that repeats another"
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")

signs = st.sampled_from("ab \t\n\n\r.é日\x85\u2028\ufeff\0\x1b\x7f")
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
    found = []
    for character in re.sub("\r\n?", "\n", text):
        kind = unicodedata.category(character)
        if kind == "Cs":
            found.append("\ufffd")
        elif character == "\ufeff":
            continue
        else:
            found.append(" " if kind == "Cc" and character not in "\t\n" else character)
    unix = re.sub("\r\n?", "\n", text)
    return "".join(found).strip(), "".join(found) != unix


def split_lines(content, counts):
    found = []
    for raw in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        text = raw.decode(errors="replace")
        if text.encode("utf-8", "surrogatepass") != raw:
            counts[BAD_BYTES] = counts.get(BAD_BYTES, 0) + 1
        found.append(text.rstrip("\r"))
    return found


def take(text, found):
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
    for line in [*split_lines(content, found.counts), ""]:
        if paragraph := line.strip():
            paragraphs.append(paragraph)
        elif paragraphs:
            take("\n".join(paragraphs), found)
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
                take(row["text"], found)
        if kind:
            found.counts[kind] = found.counts.get(kind, 0) + 1
    return found


def expected_of(content, read):
    if not content:
        return Expected([], {"empty file": 1})
    return Expected([], {NO_TEXT: 1}) if is_no_text(content) else read(content)


def check(name, content, expected):
    """Reading gives the documents, repeats included, and every case is counted; building keeps each document once."""
    unique = list(dict.fromkeys(expected.documents))
    counts = dict(expected.counts)
    if repeated := len(expected.documents) - len(unique):
        counts[REPEATED] = repeated
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        report = SourceReport()
        assert [document.text for document in open_source(str(path)).documents(report)] == expected.documents
        assert report.counts == expected.counts
        options = CorpusSettings(str(path), length=4000, minimum_tokens=1, held_out=0)
        try:
            corpus = build_corpus(options, TOKENIZER, cache_dir=Path(folder, "cache"), workers=1)
        except CorpusError as error:
            assert unique == []
            assert str(error).isprintable()
            for kind, count in counts.items():
                assert f"{count:,} x {kind}" in str(error)
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
    for name in ("a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.zst", "a.parquet"):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, name).write_bytes(content)
            report = SourceReport()
            found = list(open_source(str(Path(folder, name))).documents(report))
        assert found or report.counts or is_blank(content)


def is_blank(content):
    return not content.decode(errors="replace").removeprefix("\ufeff").strip()
