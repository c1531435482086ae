"""Values that rows of tasks are labelled with: named numbers, missing ones, and documents that come twice."""

import json
import math
import random

import datasets
import pytest
import pytrec_eval
import yaml

from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.class_numbers import ClassNumbers
from limbeck.corpus.rows.labelled_rows import LabelledRow, by_query
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.loading import load_task
from limbeck.kinds.registry import KINDS

SPLIT = "test"


@pytest.fixture
def read(tmp_path):
    """Return the rows of a task whose description is given, of the files in `tmp_path`."""

    def rows_of(**description):
        path = tmp_path / "task.yaml"
        path.write_text(yaml.safe_dump({"name": "task", **description}))
        task = load_task(str(path), data=None)
        [rows] = task.splits.values()
        return task.task, rows

    return rows_of


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("kind", "columns", "split"),
    [
        ("regression", {"text": "a", "label": "value"}, SPLIT),
        ("similarity", {"text": "a", "pair": "b", "label": "value"}, "pairs"),
        ("ranking", {"query": "a", "documents": "b", "label": "value"}, SPLIT),
        ("retrieval", {"query": "a", "documents": "b", "label": "value"}, SPLIT),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_named_numbers_are_the_values_that_their_names_say(read, tmp_path, kind, columns, split):
    """A `ClassLabel(names=["3", "1", "2"])` stores 0 for the value 3."""
    dice = random.Random(1)
    values = [dice.choice([1, 2, 3]) for _ in range(30)]
    texts = {"a": [f"query {number // 5}" for number in range(30)], "b": [f"text {number}" for number in range(30)]}
    names = ["3", "1", "2"]
    numbered = datasets.Dataset.from_dict({**texts, "value": [names.index(str(value)) for value in values]})
    numbered.cast_column("value", datasets.ClassLabel(names=names)).to_parquet(str(tmp_path / "named.parquet"))
    _, rows = read(type=kind, columns=columns, files={split: "named.parquet"})
    assert [row.label for row in rows if row.text] == [float(value) for value in values]


def test_a_column_a_class_may_name_its_numbers(read, tmp_path):
    flags = [1, 0, 0, 1]
    rows = datasets.Dataset.from_dict({"text": list("abcd"), "joy": [1 - flag for flag in flags], "anger": flags})
    rows = rows.cast_column("joy", datasets.ClassLabel(names=["1", "0"]))
    rows.to_parquet(str(tmp_path / "flags.parquet"))
    columns = {"text": "text", "label_columns": ["joy", "anger"]}
    _, read_rows = read(type="multi_label", columns=columns, files={SPLIT: "flags.parquet"}, metric=["micro_f1"])
    assert [row.label for row in read_rows] == [(flag, flag) for flag in flags]


@pytest.mark.parametrize("value", [None, ""], ids=["null", "empty"])
def test_a_missing_relevance_is_refused(read, tmp_path, value):
    rows = [{"query": "a", "document": "b", "label": 1}, {"query": "a", "document": "c", "label": value}]
    write_lines(tmp_path / "rows.jsonl", rows)
    columns = {"query": "query", "documents": "document", "label": "label"}
    with pytest.raises(CorpusError, match=r"rows.jsonl:2 is unlabelled \(its label is"):
        read(type="retrieval", columns=columns, files={SPLIT: "rows.jsonl"})


def test_a_document_without_a_column_of_relevance_is_relevant(read, tmp_path):
    write_lines(tmp_path / "rows.jsonl", [{"query": "a", "document": "b"}])
    _, [row] = read(type="retrieval", columns={"query": "query", "documents": "document"}, files={SPLIT: "rows.jsonl"})
    assert row.label == 1.0


def test_triples_of_a_ranking_are_scored_as_their_queries(read, tmp_path):
    """MS MARCO's layout names a relevant document once for each irrelevant one, and the other way round."""
    dice = random.Random(2)
    relevance = {}
    triples = []
    for query in range(12):
        positives = [f"p{query} {number}" for number in range(dice.randint(1, 4))]
        negatives = [f"n{query} {number}" for number in range(dice.randint(2, 7))]
        relevance[f"query {query}"] = {text: int(text in positives) for text in positives + negatives}
        for positive in positives:
            for negative in negatives:
                triple = {"query": f"query {query}", "positive": positive, "negative": negative}
                triples.append(triple)
    dice.shuffle(triples)
    write_lines(tmp_path / "triples.jsonl", triples)
    columns = {"query": "query", "documents": ["positive", "negative"]}
    task, rows = read(type="ranking", columns=columns, files={SPLIT: "triples.jsonl"})

    scores = [dice.random() for _ in rows]
    run = {query: {} for query in relevance}
    for row, score in zip(rows, scores, strict=True):
        run[row.text][row.pair] = score
    evaluator = pytrec_eval.RelevanceEvaluator(relevance, {"ndcg_cut_10", "recip_rank"})
    expected = [figures["ndcg_cut_10"] for figures in evaluator.evaluate(run).values()]
    metric = KINDS["ranking"].metrics["ndcg_at_10"]
    assert metric(scores, rows, task) == pytest.approx(sum(expected) / len(expected), abs=1e-12)


@pytest.mark.parametrize("kind", ["ranking", "retrieval"])
def test_two_relevances_of_a_document_are_refused(read, tmp_path, kind):
    rows = [{"query": "a", "document": "b", "label": label} for label in (1, 1, 0)]
    write_lines(tmp_path / "rows.jsonl", rows)
    columns = {"query": "query", "documents": "document", "label": "label"}
    with pytest.raises(
        CorpusError, match="the document 'b' two different relevances for the query 'a': keep only one of the two rows"
    ):
        read(type=kind, columns=columns, files={SPLIT: "rows.jsonl"})


@pytest.mark.parametrize("column", ["a", "b"])
def test_a_null_text_of_a_row_to_score_is_refused(read, tmp_path, column):
    row = {"a": "one", "b": "two", "value": 1.0}
    write_lines(tmp_path / "rows.jsonl", [row, {**row, column: None}])
    columns = {"text": "a", "pair": "b", "label": "value"}
    with pytest.raises(CorpusError, match=f"rows.jsonl:2 has no text in its column '{column}', but null"):
        read(type="similarity", columns=columns, files={"pairs": "rows.jsonl"})


def test_answers_of_cmrc_may_be_one_text(tmp_path):
    question = {"query_id": "Q1", "query_text": "what", "answers": "blue sea"}
    article = {"context_id": "D1", "context_text": "the blue sea", "title": "t", "qas": [question]}
    (tmp_path / "cmrc2018_dev.json").write_text(json.dumps([article]))
    task = load_task("cmrc2018", data=tmp_path)
    [rows] = task.splits.values()
    assert [row.answers for row in rows] == [("blue sea",)]


def test_a_name_that_fits_two_classes_but_for_its_case_is_refused():
    numbers = ClassNumbers(["US", "us", "them"])
    assert [numbers.number(name, "here") for name in ("US", "us", "THEM")] == [0, 1, 2]
    with pytest.raises(CorpusError, match="here has the label 'Us'"):
        numbers.number("Us", "here")


def test_a_class_number_without_a_name_is_no_value():
    row = PlacedRow("here", {"value": -1, "values": [0, 2]}, {"value": ("5", "1"), "values": ("5", "1")})
    assert row.named_value("value") is None
    assert row.named_value("values") == ["5", None]
    assert PlacedRow("here", {"value": -1}).named_value("value") == -1


@pytest.mark.parametrize("label", [1.0, math.nan], ids=["known", "unknown"])
def test_a_corpus_names_a_document_of_a_query_once(label):
    report = SourceReport()
    rows = [LabelledRow("", query, document, label) for query, document in ("ab", "cb", "ad", "ab")]
    assert [(row.text, row.pair) for row in by_query(rows, report)] == [("a", "b"), ("a", "d"), ("c", "b")]
    assert report.counts == {"document that is listed twice for its query, counted once": 1}
    with pytest.raises(CorpusError, match="two different relevances for the query 'a'"):
        by_query([*rows, LabelledRow("", "a", "b", 0.0)], report)
