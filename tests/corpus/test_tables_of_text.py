"""Tables of which one column is read as plain text."""

import pandas
import pytest

from limbeck.corpus import CorpusSettings, open_stream
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import open_source
from limbeck.corpus.text.cursor import Cursor
from limbeck.errors import CorpusError
from tests.support.corpora import TOKENIZER
from tests.support.streams import build_text, write_packed

TEXTS = ['a first, "quoted" text', "two\nlines\there", "a third text", "😀 \u3000 spaces"]


def table(path, **columns):
    separator = "\t" if ".tsv" in path.name else ","
    return write_packed(path, pandas.DataFrame(columns).to_csv(index=False, sep=separator))


def texts_of(place, column="text"):
    report = SourceReport()
    return [document.text for document in open_source(str(place), column).documents(report)], report


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
def test_the_only_column_with_texts_is_read_and_told(tmp_path, name):
    path = table(tmp_path / name, id=[1, 2, 3, 4], review=TEXTS, stars=["5", "", "1.5", "2"], label=["pos", "neg"] * 2)
    texts, report = texts_of(path)
    assert texts == TEXTS
    assert "table of which the column 'review' is read" in report.counts


@pytest.mark.parametrize("columns", [{"text": TEXTS, "title": TEXTS[::-1]}, {"body": TEXTS}])
def test_a_column_of_the_usual_name_and_a_single_column_are_read_without_a_note(tmp_path, columns):
    texts, report = texts_of(table(tmp_path / "a.csv", **columns))
    assert (texts, report.counts) == (TEXTS, {})


def test_the_named_column_is_read(tmp_path):
    path = table(tmp_path / "a.csv", title=TEXTS, body=TEXTS[::-1], text=["x"] * 4)
    assert texts_of(path, "body")[0] == TEXTS[::-1]
    texts, report = texts_of(path, "other")
    assert (texts, report.counts) == ([], {"row without the column 'other'": 4})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"title": TEXTS, "body": TEXTS},
            r"has no column 'text', and several columns that may be the text \(body, title\)\. "
            "Name the column of the text with --text-column",
        ),
        (
            {"a": ["x"], "b": ["y"]},
            r"has no column 'text', and no column of the text by its looks \(a, b\)\. "
            "Name the column of the text with --text-column",
        ),
        ({"a whole text of words": TEXTS}, "has no header: its first line would name a column 'a whole text of words'"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(tmp_path, columns, message):
    with pytest.raises(CorpusError, match=message):
        texts_of(table(tmp_path / "a.csv", **columns))


def test_tables_in_folders_are_read_where_their_kind_is_named(tmp_path):
    table(tmp_path / "a.csv", text=TEXTS)
    (tmp_path / "b.txt").write_text("plain text")
    texts, report = texts_of(tmp_path)
    assert texts == ["plain text"]
    assert report.counts == {"file of another kind, skipped": 1}
    assert texts_of(tmp_path / "*")[0] == ["plain text"]
    assert texts_of(tmp_path / "*.csv")[0] == TEXTS


@pytest.mark.parametrize("stop", range(5))
def test_reading_goes_on_behind_any_text(tmp_path, stop):
    # A table may have a few broken lines if it has a hundred times as many rows.
    lines = ["id,review", "1,a first text", "broken", '2,"a second\ntext"', "broken", "3,a third text", "4,", "broken"]
    path = write_packed(tmp_path / "a.csv", "\n".join([*lines, *["5,a text"] * 300]))
    whole, whole_report = texts_of(path)
    assert len(whole) == 303
    cursor, report = Cursor(), SourceReport()
    texts = []
    documents = open_source(str(path)).documents(report, None, cursor)
    for _ in range(stop):
        document = next(documents, None)
        if document is not None:
            texts.append(document.text)
    cursor = Cursor.from_json(cursor.to_json())
    report = SourceReport.from_dict(report.to_dict())
    documents.close()
    texts += [document.text for document in open_source(str(path)).documents(report, None, cursor)]
    assert texts == whole
    assert report.counts == whole_report.counts


def test_a_table_is_built_and_streamed(tmp_path, cache):
    path = table(tmp_path / "a.csv", review=[f"text number {number}" for number in range(30)], stars=[1] * 30)
    corpus = build_text(cache, TOKENIZER, path)
    assert corpus.manifest["documents"] == 30
    settings = CorpusSettings(sources=[str(path)], length=24, minimum_tokens=1, streaming=True)
    assert open_stream(settings, TOKENIZER, cache_dir=cache).manifest["documents"] == 30
