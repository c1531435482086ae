"""Labelled rows: every layout of file, what is refused in one line, and what is passed over and counted."""

import csv
import io
import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limbeck.corpus import LabelledSettings, SourceReport
from limbeck.corpus.labelled import Example, example_reader
from limbeck.corpus.sources import open_rows
from limbeck.errors import CorpusError
from tests.support.streams import write_packed

CLASSES = ("negative", "positive")
ROWS = [
    {"text": 'A "quoted" start, with a comma', "label": "positive"},
    {"text": 'It ends " oddly', "label": "negative"},
    {"text": "Ünïcode\u2028 in one line", "label": "1"},
]
SQUAD = [
    {
        "title": "T",
        "paragraphs": [
            {
                "context": "  The red fox ran.",
                "qas": [
                    {"id": "a", "question": "Who ran?", "answers": [{"text": "red fox", "answer_start": 6}]},
                    {"id": "b", "question": "When?", "is_impossible": True, "answers": []},
                    {"id": "c", "question": "Which?", "answers": [{"text": "fox", "answer_start": 6}]},
                ],
            }
        ],
    }
]


def examples(source, **settings):
    options = {"task": "classification", "labels": CLASSES, **settings}
    read = example_reader(LabelledSettings(sources=(str(source),), **options))
    report = SourceReport()
    found = [read(row, report) for row in open_rows(str(source)).rows(report)]
    return [example for example in found if example is not None], report


def content_of(layout):
    lines = "\n".join(map(json.dumps, ROWS))
    if layout == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(ROWS), sink)
        return sink.getvalue().to_pybytes()
    if layout == "csv":
        text = io.StringIO()
        csv.writer(text).writerows([["text", "label"], *([row["text"], row["label"]] for row in ROWS)])
        return "\ufeff" + text.getvalue()
    if layout == "tsv":
        return "\ufefftext\tlabel\r\n" + "".join(f"{row['text']}\t{row['label']}\r\n" for row in ROWS)
    return {"jsonl": lines + "\n\n", "json": json.dumps(ROWS), "json-data": json.dumps({"data": ROWS})}.get(
        layout, lines
    )


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("layout", ["jsonl", "json", "json-data", "json-lines", "csv", "tsv", "parquet"])
def test_every_layout_gives_the_same_rows(tmp_path, layout, compression):
    path = write_packed(tmp_path / f"a.{layout.partition('-')[0]}{compression}", content_of(layout))
    found, report = examples(path)
    assert found == [Example(row["text"], None, label) for row, label in zip(ROWS, (1, 0, 1), strict=True)]
    assert report.lines() == []


def test_a_quoted_field_of_csv_may_hold_newlines(tmp_path):
    path = write_packed(tmp_path / "a.csv", 'text,label\r\n"one\r\ntwo",positive\r\n')
    assert examples(path)[0] == [Example("one\ntwo", None, 1)]


def test_pairs_and_columns_by_other_names(tmp_path):
    path = write_packed(tmp_path / "a.tsv", 'Quality\t#1 String\t#2 String\n1\tHe ran .\tShe " ran .\n')
    columns = {"text_column": "#1 String", "pair_column": "#2 String", "label_column": "Quality"}
    assert examples(path, **columns)[0] == [Example("He ran .", 'She " ran .', 1)]


def test_txt_is_tsv_where_it_is_named_and_nothing_in_a_folder(tmp_path):
    write_packed(tmp_path / "README.txt", "Some words.")
    named = write_packed(tmp_path / "train.txt", "text\tlabel\nGood\tpositive\n")
    write_packed(tmp_path / "a.tsv", "text\tlabel\nBad\tnegative\n")
    assert examples(named)[0] == [Example("Good", None, 1)]
    found, report = examples(tmp_path)
    assert found == [Example("Bad", None, 0)]
    assert report.counts == {"file of another kind, passed over": 2}


@pytest.mark.parametrize(
    ("labels", "value", "number"),
    [
        (CLASSES, "positive", 1),
        (CLASSES, "POSITIVE", 1),
        (CLASSES, " positive ", 1),
        (CLASSES, 1, 1),
        (CLASSES, "1", 1),
        (CLASSES, 1.0, 1),
        (CLASSES, "1.0", 1),
        (CLASSES, True, 1),
        (("True", "False"), True, 0),
        (("US", "us"), "us", 1),
        (("LABEL_0", "LABEL_1"), "label_1", 1),
        (("1", "2", "3"), 1, 0),
        (("1", "2", "3"), "3", 2),
        (("-1", "1"), -1, 0),
    ],
)
def test_class_labels(tmp_path, labels, value, number):
    path = write_packed(tmp_path / "a.jsonl", json.dumps({"text": "x", "label": value}))
    assert examples(path, labels=labels)[0][0].label == number


@pytest.mark.parametrize("value", ["neutral", 2, "-2", 0.5, [1], "", " ", None, -1, "-1"])
def test_labels_that_are_no_class(tmp_path, value):
    path = write_packed(tmp_path / "a.jsonl", '{"text": "x", "label": 0}\n' + json.dumps({"text": "x", "label": value}))
    with pytest.raises(CorpusError) as caught:
        examples(path)
    message = str(caught.value)
    assert f"{path}:2" in message and repr(value) in message and "\n" not in message
    if value in ("", " ", None, -1, "-1"):
        assert "unlabelled" in message
    else:
        assert "negative, positive" in message


def test_numbers_are_no_numbers_of_classes_that_have_numbers_as_names(tmp_path):
    path = write_packed(tmp_path / "a.jsonl", '{"text": "x", "label": 0}')
    with pytest.raises(CorpusError, match="label 0, which is none"):
        examples(path, labels=("1", "2", "3"))


def test_a_data_set_that_numbers_the_classes_differently_is_understood_by_its_names(tmp_path, monkeypatch):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["yes", "No"])})
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features)
    data.to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: data.to_iterable_dataset())
    for source in (tmp_path / "a.parquet", "hub:some/data"):
        assert [example.label for example in examples(source, labels=("no", "yes"))[0]] == [1, 0]
        # A teacher without names of its own goes by the numbers.
        assert [example.label for example in examples(source, labels=("LABEL_0", "LABEL_1"))[0]] == [0, 1]


def test_values(tmp_path):
    path = write_packed(tmp_path / "a.csv", "text,label\na,3.5\nb,-1\nc,1e-3\n")
    assert [example.label for example in examples(path, task="regression")[0]] == [3.5, -1.0, 0.001]
    for value, message in [("nan", "not a finite number"), ("inf", "not a finite"), ("x", "'x'"), (" ", "unlabelled")]:
        write_packed(path, f"text,label\na,{value}\n")
        with pytest.raises(CorpusError, match=message):
            examples(path, task="regression")
    with pytest.raises(CorpusError, match="True, which is not a finite number"):
        examples(write_packed(tmp_path / "a.jsonl", '{"text": "a", "label": true}'), task="regression")


def test_squad_nested_and_flat(tmp_path):
    nested = write_packed(tmp_path / "a.json", json.dumps({"version": "2.0", "data": SQUAD}))
    found, report = examples(nested, task="question_answering")
    # Nothing is stripped from a context: the answer's place would move.
    assert found == [
        Example("  The red fox ran.", "Who ran?", (6, 13)),
        Example("  The red fox ran.", "When?", (-1, -1)),
    ]
    assert report.counts == {"answer that is not at its answer_start, dropped": 1}
    assert report.examples["answer that is not at its answer_start, dropped"] == [f"{nested}:1, question c"]
    flat = [
        {"q": "Who ran?", "p": "  The red fox ran.", "a": {"text": ["red fox", "fox"], "answer_start": [6, 10]}},
        {"q": "When?", "p": "  The red fox ran.", "a": {"text": [], "answer_start": []}},
        {"q": "Which?", "p": "  The red fox ran.", "a": {"text": [""], "answer_start": [-1]}},
    ]
    path = write_packed(tmp_path / "a.jsonl", "\n".join(map(json.dumps, flat)))
    columns = {"question_column": "q", "context_column": "p", "answers_column": "a"}
    again, report = examples(path, task="question_answering", **columns)
    assert again == found
    assert report.counts == {"answer that is not at its answer_start, dropped": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "context": "c"}, "has no column 'answers': set answers_column to one of context, question"),
        ({"question": "q", "context": "c", "answers": None}, "unlabelled"),
        ({"question": "q", "context": "c", "answers": "c"}, "not as SQuAD has them"),
        ({"question": "q", "context": "c", "answers": {"text": ["c"]}}, "not as SQuAD has them"),
        ({"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": []}}, "not as SQuAD has them"),
        ({"paragraphs": [{"qas": [{"question": "q"}]}]}, "not laid out as SQuAD's"),
        ({"paragraphs": 3}, "not laid out as SQuAD's"),
    ],
)
def test_questions_that_cannot_be_read(tmp_path, row, message):
    path = write_packed(tmp_path / "a.jsonl", json.dumps(row))
    with pytest.raises(CorpusError, match=message):
        examples(path, task="question_answering")


def test_what_is_passed_over_is_counted(tmp_path):
    lines = [
        '{"text": "good", "label": 1}',
        '{"text": "cut off',
        '["text"]',
        '{"text": null, "label": 1}',
        '{"text": " ", "label": 1}',
        '{"text": 3, "label": 1}',
        '{"text": "lone \\ud800 surrogate", "label": 0}',
    ]
    found, report = examples(write_packed(tmp_path / "a.jsonl", "\n".join(lines)))
    assert [example.text for example in found] == ["good", "lone \ufffd surrogate"]
    assert report.counts == {
        "line of invalid JSON": 1,
        "JSON value that is not an object": 1,
        "row whose column 'text' is empty": 2,
        "column 'text' that is not text": 1,
    }
    found, report = examples(write_packed(tmp_path / "a.tsv", "text\tlabel\na\tb\t1\ngood\t1\n\n"))
    assert [example.text for example in found] == ["good"]
    assert report.counts == {"row with another number of fields than the header": 1}
    found, report = examples(
        write_packed(tmp_path / "b.jsonl", json.dumps({"question": "q", "context": " ", "answers": []})),
        task="question_answering",
    )
    assert (found, report.counts) == ([], {"row with an empty context": 1})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "sentence,label\na,1\n", "has no column 'text': set text_column to one of label, sentence, or leave"),
        ("a.tsv", "text\tscore\na\t1\n", "has no column 'label': set label_column to one of score, text"),
        ("a.csv", "text,label,label\na,1,1\n", "names the column 'label' twice"),
        ("a.csv", f'text,label\n"{"a" * 200_000}', "near line 2 as CSV"),
    ],
)
def test_tables_that_do_not_fit(tmp_path, name, content, message):
    with pytest.raises(CorpusError, match=message) as caught:
        examples(write_packed(tmp_path / name, content))
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sources_that_cannot_be_meant(tmp_path):
    with pytest.raises(CorpusError, match="no labels"):
        open_rows("installed-docs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        CorpusError, match=r"holds no file of a kind that is read: \.csv, \.json, \.jsonl, \.parquet, \.tsv,"
    ):
        open_rows(str(tmp_path / "empty"))
    with pytest.raises(CorpusError, match="is not the name of a Hub data set"):
        open_rows("hub:no/such name")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "clasification"}, "Unknown task 'clasification'. Did you mean 'classification'"),
        ({"sources": ()}, "no source"),
        ({"labels": ("a", "a")}, "same name"),
        ({"length": 0}, "length is 0"),
        ({"stride": -1}, "stride is -1"),
        ({"held_out": 1.0}, "held_out is 1.0"),
        ({"max_rows": 0}, "max_rows is 0"),
    ],
)
def test_settings_that_cannot_be_meant(settings, message):
    with pytest.raises(CorpusError, match=message):
        LabelledSettings(**{"task": "classification", "sources": ("a",), **settings})
