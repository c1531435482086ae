"""Tasks of several classes a row, and weights of classes: fine-tuning, thresholds, files and what is refused."""

import json
from dataclasses import replace

import datasets
import pytest
import torch
import yaml

from limbeck.core.studies import EvaluationCell
from limbeck.errors import CorpusError, LimbeckError, RecipeError
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.identity import identity
from limbeck.evaluation.plan.planner import Planner
from limbeck.evaluation.plan.points import settings_of, training_points
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.protocols.overrides import parse_overrides
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.results.predictions import read_predictions, save_predictions
from limbeck.evaluation.results.submissions import write_submissions
from limbeck.evaluation.tasks.loading import load_task
from limbeck.kinds.scoring import score
from limbeck.kinds.task import SplitFacts, Submission
from limbeck.kinds.thresholds import choose_thresholds
from limbeck.models.tokenizers import load_tokenizer
from tests.support.tasks import KEYS, POINT, make_data, make_rows, make_task, prepare, run_cell, tiny_folder

SHORT = replace(POINT, epochs=1)


def test_thresholds_are_chosen_on_the_select_split_and_said_for_the_others(tmp_path):
    data = make_data("multi_label", paired=False, scored=("validation", "held"))
    splits = {**data.task.splits, "held": SplitFacts()}
    rows = {**data.splits, "held": make_rows("multi_label", 15, 5, paired=False)}
    data = replace(data, task=replace(data.task, splits=splits), splits=rows)
    folder, point = tiny_folder(tmp_path), replace(SHORT, choose_thresholds=True)
    prepared = prepare(data, point, load_tokenizer(folder), keys=KEYS, cache_dir=tmp_path / "cache")
    found = run_cell(Cell(str(folder), "t", point, 1), prepared)
    plain = run_cell(Cell(str(folder), "t", SHORT, 1), prepared)
    names = [f"{label}_threshold" for label in data.task.labels]
    assert found.scores["validation"] == plain.scores["validation"]
    assert not {*names} & {*plain.scores["held"]}
    thresholds = [found.scores["held"][name] for name in names]
    assert any(threshold != 0.5 for threshold in thresholds)
    # The probabilities are the same, and what decides is told.
    assert found.scores["held"]["mean_average_precision"] == plain.scores["held"]["mean_average_precision"]
    assert found.thresholds == thresholds and plain.thresholds is None
    # With one labelled split alone, leaderboard files have the thresholds all the same.
    alone = run_cell(
        Cell(str(folder), "t", point, 1), replace(prepared, task=replace(data.task, scored=("validation",)))
    )
    assert alone.scores["validation"] == plain.scores["validation"] and alone.thresholds == found.thresholds
    task = replace(data.task, submissions={"test": Submission(file="test.tsv", classes="numbers")})
    saved, written = save_predictions(tmp_path, "a", found.predictions), []
    for of_cell in ({"thresholds": alone.thresholds, "scores": alone.scores}, {"scores": found.scores}):
        cell = EvaluationCell(predictions=saved, select="validation", **of_cell)  # The last as earlier versions had it.
        (path,) = write_submissions(tmp_path, "m", task, [cell], "micro_f1")
        written.append([line.split("\t")[1] for line in path.read_text().splitlines()[1:]])
    probabilities = read_predictions(tmp_path / str(saved))["test"]
    expected = [
        "|".join(str(n) for n, (value, least) in enumerate(zip(row, thresholds, strict=True)) if value >= least)
        for row in probabilities
    ]
    assert written == [expected, expected]


def test_identities_of_older_cells_stay():
    """Settings that came later are part of an identity only where they say something."""
    assert not {"class_weights", "choose_thresholds"} & {*settings_of(POINT)}
    point = replace(POINT, class_weights=(1.0, 2.0))
    assert settings_of(point)["class_weights"] == (1.0, 2.0)
    ids = {identity(Cell("m", "t", each, 1), model="a", data="b") for each in (POINT, point)}
    assert len(ids) == 2


ROWS = [["joy", "fear"], [], ["anger"]]
FLAGS = [(1, 0, 1), (0, 0, 0), (0, 1, 0)]
NAMES = ["joy", "anger", "fear"]


def written(folder, layout):
    texts = [f"text {number}" for number in range(3)]
    if layout == "columns":
        lines = [["text", *reversed(NAMES)], *([text, *reversed(row)] for text, row in zip(texts, FLAGS, strict=True))]
        content = "\n".join("\t".join(map(str, line)) for line in lines)
        (folder / "rows.tsv").write_text(content + "\n")
        return "rows.tsv", {"label_columns": [*reversed(NAMES)]}
    if layout == "tsv":
        lines = [f"{text}\t{'|'.join(row)}" for text, row in zip(texts, ROWS, strict=True)]
        (folder / "rows.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
        return "rows.tsv", {}
    if layout == "jsonl":
        rows = [{"text": text, "label": row} for text, row in zip(texts, ROWS, strict=True)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return "rows.jsonl", {}
    numbers = [[2, 1], [], [0]]  # Of other classes than the task numbers them.
    features = {
        "text": datasets.Value("string"),
        "label": datasets.Sequence(datasets.ClassLabel(names=NAMES[1::-1] + NAMES[2:])),
    }
    table = datasets.Dataset.from_dict({"text": texts, "label": numbers}, datasets.Features(features))
    table.to_parquet(folder / "rows.parquet")
    return "rows.parquet", {}


def own_task(folder, layout="tsv", **changes):
    name, columns = written(folder, layout)
    described = {"name": "moods", "type": "multi_label", "labels": NAMES, "columns": {"text": "text", **columns}}
    described |= {"files": {"train": name, "validation": name}}
    path = folder / "moods.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in (described | changes).items() if value is not None}))
    return path


@pytest.mark.parametrize("layout", ["jsonl", "tsv", "columns", "parquet"])
def test_every_layout_gives_the_same_rows(tmp_path, layout):
    data = load_task(str(own_task(tmp_path, layout)), data=None)
    assert [row.label for row in data.splits["validation"]] == FLAGS
    assert data.task.metrics == ("micro_f1", "macro_f1", "accuracy", "mean_average_precision")


def test_columns_name_the_classes_where_labels_do_not(tmp_path):
    task = load_task(str(own_task(tmp_path, "columns", labels=None)), data=None).task
    assert task.labels == tuple(reversed(NAMES))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "labels is missing: name two classes or more"),
        ({"labels": ["joy", "anger"]}, r"has the label 'fear', which is not one of moods's \(joy, anger\) or a number"),
        ({"metric": "f1"}, "multi_label has no metric 'f1'. Known: accuracy, macro_f1"),
        ({"type": "classification"}, "has the label 'joy|fear'"),
        (
            {"columns": {"text": "text", "label_columns": ["joy"]}, "type": "regression", "labels": None},
            "are for multi_l",
        ),
        ({"columns": {"text": "text", "label_columns": NAMES}}, "rows.tsv:2 has no column 'joy'"),
    ],
)
def test_descriptions_that_do_not_fit_are_refused(tmp_path, changes, message):
    with pytest.raises(LimbeckError, match=message) as caught:
        load_task(str(own_task(tmp_path, **changes)), data=None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (
            "regression",
            "class_weights=balanced",
            r"--set tiny_regression.class_weights gives weights to classes, but the labels of this task",
        ),
        ("classification", "class_weights=[1,2,3]", "has 3 weights, but there are 2 classes"),
        ("classification", "class_weights={maybe: 2}", "names 'maybe', which is not a class"),
        (
            "classification",
            "class_weights=even",
            "class_weights is 'even'; give 'balanced', a weight for each class name",
        ),
        (
            "classification",
            "choose_thresholds=true",
            "choose_thresholds applies only to tasks whose rows may have several classes",
        ),
    ],
)
def test_settings_of_classes_that_cannot_be_are_refused(kind, text, message):
    task = make_task(kind)
    with pytest.raises(RecipeError, match=message) as caught:
        training_points(task, PROTOCOLS["minilmv2"].settings(task, parse_overrides([text], [task.name])), bf16=False)
    assert "\n" not in str(caught.value)


def planned(path, tmp_path, *overrides):
    return Planner(EvaluationRequest(("m",), str(path), tmp_path / "out", overrides=overrides)).plan(str(path))


def test_uneven_rows_are_told_and_rows_of_one_class_refused(tmp_path):
    path = own_task(tmp_path, "tsv")
    notes = planned(path, tmp_path, "choose_thresholds=true").notes
    assert "moods: thresholds stay 0.5, since validation, on which they are chosen, is all that is scored" in notes
    lines = ["text\tlabel", *(f"text {number}\tjoy" for number in range(40)), "text\tfear", ""]
    (tmp_path / "rows.tsv").write_text("\n".join(lines))
    told = "moods train: classes are uneven in 41 rows: anger none, fear 1 (2.4%), joy 40 (97.6%)"
    assert told in planned(path, tmp_path).notes
    with pytest.raises(
        CorpusError, match="balanced' cannot be computed from these 41 labels: none of them has the class 'anger'"
    ):
        planned(path, tmp_path, "class_weights=balanced")
    (tmp_path / "rows.tsv").write_text("\n".join(lines[:-2]) + "\n")
    with pytest.raises(CorpusError, match="moods train: All 40 rows have the class 'joy'; add rows of other classes"):
        planned(path, tmp_path)


def test_thresholds_of_probabilities_are_those_of_labels():
    """What is chosen on rows scores best on the same rows."""
    task, rows = make_task("multi_label"), make_rows("multi_label", 30, 3)
    probabilities = torch.rand(30, 3, generator=torch.Generator().manual_seed(0)).tolist()
    chosen = replace(task, thresholds=choose_thresholds(probabilities, rows))
    assert (
        score(chosen, "validation", rows, probabilities)["macro_f1"]
        > score(task, "validation", rows, probabilities)["macro_f1"]
    )
