"""The text of WordNet that comes with limbeck."""

import gzip
from importlib import resources

import pytest

from limbeck.corpus import SourceReport, open_source
from limbeck.corpus.sources.named_sources import check_source, open_rows
from limbeck.corpus.text.cursor import Cursor
from limbeck.errors import CorpusError


def documents(cursor=None):
    report = SourceReport()
    texts = list(open_source("wordnet").documents(report, cursor=cursor))
    assert not report.counts
    return texts


def test_a_document_is_a_definition_and_its_examples():
    texts = documents()
    assert len(texts) == 30_258
    assert all(document.title and document.body for document in texts)
    assert len({document.text for document in texts}) == len(texts)
    examples = sum(document.body.count("\n") + 1 for document in texts)
    assert examples > 42_000


def test_reading_goes_on_behind_any_document():
    texts = documents()
    for position in (0, 1, 30_257, 30_258):
        assert documents(Cursor(position=position)) == texts[position:]
    assert documents(Cursor(shard=1)) == []


def test_it_has_no_labels_and_the_name_is_no_path():
    check_source("wordnet", "texts")
    with pytest.raises(CorpusError, match="has only texts, without labels"):
        open_rows("wordnet")


def test_its_licence_lies_beside_it():
    folder = resources.files("limbeck.corpus.sources") / "data"
    assert "Princeton University" in (folder / "wordnet_license.txt").read_text()
    assert gzip.decompress((folder / "wordnet.txt.gz").read_bytes()).endswith(b"\n")
