"""Labelled rows: every layout of file gives the same, and `rows.yaml` has what is read and what is skipped."""

import csv
import io
import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from limbeck.corpus import LabelledSettings, build_labelled_corpus
from limbeck.corpus.rows.first_rows import read_first_rows
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.kinds.registry import KINDS
from tests.support.corpora import TOKENIZER
from tests.support.streams import build_rows, examples, write_packed

TABLES = yaml.safe_load((Path(__file__).parent / "rows.yaml").read_text(encoding="utf-8"))
ROWS = [
    {"text": 'A "quoted" start, with a comma', "label": "positive"},
    {"text": 'It ends " oddly', "label": "negative"},
    {"text": "Ünïcode\u2028 in one line", "label": "1"},
]


def content_of(layout):
    lines = "\n".join(map(json.dumps, ROWS))
    if layout == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(ROWS), sink)
        return sink.getvalue().to_pybytes()
    if layout == "csv":
        text = io.StringIO()
        csv.writer(text).writerows([["text", "label"], *(row.values() for row in ROWS)])
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
    assert found == [LabelledRow("", row["text"], None, label) for row, label in zip(ROWS, (1, 0, 1), strict=True)]
    assert report.lines() == []


def test_the_rows_of_a_source_that_is_listed_twice_are_counted_twice(tmp_path):
    path = write_packed(tmp_path / "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in ROWS))
    corpus = build_rows(tmp_path / "cache", TOKENIZER, path, path, held_out=0.0)
    assert corpus.manifest["sources"] == {str(path): 6}


@pytest.mark.parametrize("table", TABLES["files"].values(), ids=TABLES["files"])
def test_rows_are_read_and_what_is_passed_over_is_counted(tmp_path, table):
    paths = [write_packed(tmp_path / name, content) for name, content in table["file"].items()]
    found, report = examples(tmp_path if len(paths) > 1 else paths[0], **table.get("settings", {}))
    assert json.loads(json.dumps([(row.text, row.pair, row.label) for row in found])) == table["examples"]
    assert report.counts == table.get("counts", {})
    for place in table.get("places", ()):
        assert [f"{tmp_path}/{place}"] in report.examples.values()


@pytest.mark.parametrize(("labels", "value", "number"), TABLES["classes"])
def test_class_labels(tmp_path, labels, value, number):
    path = write_packed(tmp_path / "a.jsonl", json.dumps({"text": "x", "label": value}))
    assert examples(path, labels=labels)[0][0].label == number


def test_a_data_set_that_numbers_the_classes_differently_is_understood_by_its_names(tmp_path, monkeypatch):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["yes", "No"])})
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features)
    data.to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: data.to_iterable_dataset())
    for source in (tmp_path / "a.parquet", "hub:some/data"):
        assert [example.label for example in examples(source, labels=("no", "yes"))[0]] == [1, 0]
        # A teacher whose classes have no names goes by the numbers.
        assert [example.label for example in examples(source, labels=("LABEL_0", "LABEL_1"))[0]] == [0, 1]


@pytest.mark.parametrize("names", [["1", "0"], ["LABEL_1", "LABEL_0"]])
@pytest.mark.parametrize("labels", [("0", "1"), ("LABEL_0", "LABEL_1")])
def test_a_data_set_whose_class_names_are_numbers_is_understood_by_them(tmp_path, names, labels):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features)
    data.to_parquet(tmp_path / "a.parquet")
    data.save_to_disk(tmp_path / "saved")
    for source in (tmp_path / "a.parquet", tmp_path / "saved"):
        assert [example.label for example in examples(source, labels=labels)[0]] == [1, 0]


def test_the_content_of_rows_is_known_wherever_they_lie_and_by_source(tmp_path):
    found = []
    for place, last in (("one", "end"), ("other", "end"), ("other", "changed")):
        sources = [tmp_path / place / f"{number}.tsv" for number in range(2)]
        for number, source in enumerate(sources):
            source.parent.mkdir(exist_ok=True)
            rows = [f"text {row} of {number} {last if number else ''}\t{row % 2}" for row in range(20)]
            source.write_text("\n".join(["text\tlabel", *rows]))
        settings = LabelledSettings(
            kind="classification", sources=list(map(str, sources)), labels=("no", "yes"), length=24
        )
        built = build_labelled_corpus(
            settings, TOKENIZER, KINDS[settings.task], cache_dir=tmp_path / f"cache-{place}", workers=1
        )
        assert built.shares() == [0.5, 0.5]
        found.append(built.content)
    assert found[0] == found[1] and len(found[0]) == 3
    assert [one == other for one, other in zip(found[1], found[2], strict=True)] == [True, False, False]


def test_what_first_rows_tell_before_a_corpus_is_built(tmp_path):
    def first(kind, content, name="rows.jsonl", **more):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content))
        settings = LabelledSettings(kind=kind, sources=[str(path)], labels=("no", "yes"), **more)
        return read_first_rows(settings, KINDS[settings.task], classes=kind != "ranking", queries=kind == "ranking")

    alike = [{"text": f"text {number}", "label": 1} for number in range(7)]
    assert first("classification", alike).counts_of_alike.describe_one() == "All 7 rows have the class 'yes'"
    other = {"text": "a text", "label": 0}
    assert first("classification", [*alike, other]).counts_of_alike is None
    assert first("classification", [*alike, other], max_rows=5).counts_of_alike.total == 5
    # What stands behind the second class is not read.
    assert first("classification", [other, *alike, {"text": "a", "label": "unknown"}]).counts_of_alike is None
    single = [{"query": f"what is {number}", "documents": "a text"} for number in range(3)]
    assert first("ranking", single).have_single_documents
    assert not first("ranking", [*single, single[0]]).have_single_documents
    assert not first("ranking", [*single, {"query": "who?", "documents": ["a", "b"]}]).have_single_documents
    for empty in ("", "\n\n\n"):
        with pytest.raises(CorpusError, match="holds no labelled row"):
            first("token_classification", empty, "rows.conll")
