"""Any bytes under any name: a corpus, with every loss counted, or one line; never anything else."""

import gzip
import io
import json
import tempfile
import unicodedata
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limbeck.corpus import CorpusSettings, LabelledSettings, Lane, build_corpus, build_labelled_corpus, open_stream
from limbeck.errors import CorpusError
from tests.support.corpora import TOKENIZER

KINDS = (".txt", ".jsonl", ".parquet", ".md", ".rst")
PACKING = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}

# Text with what text may have: any character, controls, lone surrogates, and the marks that readers look for.
characters = st.one_of(st.characters(), st.sampled_from("\0\r\n\t\x1b\x85\u2028\ufeff\udc80 .`*[]():|#-_<>{}\"'\\"))
texts = st.text(characters, max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(characters, max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("text"), inner, max_size=3)
    ),
    max_leaves=6,
)
lines = st.lists(
    st.one_of(
        values.map(lambda value: json.dumps(value).encode()),
        st.text(characters, max_size=60).map(lambda text: json.dumps({"text": text}).encode()),
        st.binary(max_size=30),
        st.integers(1, 3000).map(lambda depth: b'{"text":' + b"[" * depth),
    ),
    max_size=8,
).map(b"\n".join)
contents = st.one_of(st.binary(max_size=300), texts, lines, st.binary(min_size=2000, max_size=5000))


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
    content = draw(parquet_files() if kind == ".parquet" and draw(st.booleans()) else contents)
    packing = draw(st.sampled_from(sorted(PACKING)))
    if draw(st.integers(0, 4)):
        content = PACKING[packing](content)
    if packing and content and draw(st.booleans()):
        content = content[: draw(st.integers(0, len(content)))] + draw(st.binary(max_size=4))
    return f"a{kind}{packing}", content


def is_one_line(error):
    return str(error).isprintable() and len(str(error)) < 2000


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
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        options = CorpusSettings(str(path), length=24, minimum_tokens=1, held_out=0.3)
        try:
            corpus = build_corpus(options, TOKENIZER, cache_dir=Path(folder, "cache"), workers=1)
        except CorpusError as error:
            assert is_one_line(error), str(error)
        else:
            check_corpus(corpus)


def read_in_stream(name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        options = CorpusSettings(str(path), length=24, minimum_tokens=1, held_out=0.3, streaming=True, shuffle_buffer=8)
        try:
            corpus = open_stream(options, TOKENIZER, cache_dir=Path(folder, "cache"))
            whole = list(islice(corpus.batches(Lane(0, 1), batch_size=2, seed=0), 9))
            again = list(islice(corpus.batches(Lane(0, 1), batch_size=2, seed=0, state=whole[5][1]), 3))
        except CorpusError as error:
            assert is_one_line(error), str(error)
        else:
            check_corpus(corpus)
            for (blocks, state), (others, other) in zip(again, whole[6:], strict=True):
                assert [block.ids.tolist() for block in blocks] == [block.ids.tolist() for block in others]
                assert state == other


THOROUGH = [60, pytest.param(2000, marks=pytest.mark.slow)]


def try_files(check, count):
    settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))(given(files())(check))()


@pytest.mark.parametrize("count", THOROUGH)
@pytest.mark.parametrize("check", [build, read_in_stream])
def test_any_file_is_built_or_refused_in_one_line(check, count):
    try_files(lambda file: check(*file), count)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([".json", ".jsonl", ".csv", ".tsv", ".parquet"]), contents | parquet_files())
def test_any_labelled_file_is_built_or_refused_in_one_line(kind, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a{kind}")
        path.write_bytes(content)
        options = LabelledSettings("classification", str(path), length=24, labels=("no", "yes"))
        try:
            build_labelled_corpus(options, TOKENIZER, cache_dir=Path(folder, "cache"), workers=1)
        except CorpusError as error:
            assert is_one_line(error), str(error)
