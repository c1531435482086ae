"""Several labels a text and weights of classes, from rows to a student; what is told of uneven rows, and refused."""

import io
import json

import numpy as np
import onnxruntime
import pytest
import torch
from rich.console import Console
from transformers import AutoTokenizer, pipeline

import limbeck
from limbeck.core import progress_bars
from limbeck.errors import CorpusError, ModelError, RecipeError
from limbeck.export import ExportRequest, export_model
from limbeck.objectives import OBJECTIVES
from limbeck.training.class_counts import weigh_classes
from limbeck.training.corpora import build_corpora
from limbeck.training.run_tokenizers import load_tokenizers
from tests.support.models import make_teacher
from tests.support.recipes import recipe_of

NAMES = ("joy", "anger", "fear")
SEVERAL = {"num_labels": 3, "problem_type": "multi_label_classification", "id2label": dict(enumerate(NAMES))}
METHOD = {"name": "bert_pkd", "patient_weight": 0, "soft_label_share": 0.5}


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("several"), head="multi_label", **SEVERAL)


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("single"), head="classification", **SEVERAL | {"problem_type": None})


def rows(folder, labels, header="label", name="rows.tsv"):
    path = folder / name
    lines = [f"the text {number} of the model\t{label}" for number, label in enumerate(labels)]
    path.write_text("\n".join([f"text\t{header}", *lines]) + "\n", encoding="utf-8")
    return path


def recipe(teacher, path, output, kind="multi_label", method=METHOD, **task):
    made = recipe_of(teacher, path, method, held_out=0.0, output=str(output))
    made["corpus"]["task"] = {"kind": kind, **task}
    return made


def test_a_student_of_several_labels_from_rows_to_pipeline_and_graph(several, tmp_path, monkeypatch):
    shown, show = [], progress_bars.activity
    monkeypatch.setattr(progress_bars, "activity", lambda console, what: shown.append(what) or show(console, what))
    path = rows(tmp_path, ["1\t0\t0", "1\t1\t0", "0\t0\t1", "0\t0\t0"] * 8, "\t".join(NAMES))
    made = recipe(several, path, tmp_path / "run", label_columns=[*NAMES], class_weights="balanced")
    told = io.StringIO()
    result = limbeck.distill(made, console=Console(file=told, width=200))
    assert "uneven" not in told.getvalue()
    assert "making the student" in shown
    assert [what for what in shown if "sentence vectors" in what] == [], "a classifier makes none"
    classify = pipeline("text-classification", str(result.student), top_k=None, function_to_apply="sigmoid")
    config = classify.model.config
    assert (config.problem_type, config.id2label) == ("multi_label_classification", dict(enumerate(NAMES)))
    (found,) = classify(["the text of the model"])
    assert {each["label"] for each in found} == {*NAMES}
    export = export_model(ExportRequest(str(result.student), "onnx", output=tmp_path / "graph"))
    batch = AutoTokenizer.from_pretrained(result.student)("the text of the model", return_tensors="np")
    session = onnxruntime.InferenceSession(next(export.folder.rglob("*.onnx")))
    inputs = {node.name: batch[node.name].astype(np.int64) for node in session.get_inputs()}
    (logits,) = session.run(["logits"], inputs)
    scores = {each["label"]: each["score"] for each in found}
    assert 1 / (1 + np.exp(-logits[0])) == pytest.approx([scores[name] for name in NAMES], rel=1e-4)


def test_balanced_weights_are_of_the_rows_to_train_on(single, tmp_path):
    path = rows(tmp_path, ["joy"] * 6 + ["anger"] * 3 + ["fear"])
    made = recipe(single, path, tmp_path / "run", "classification", class_weights="balanced")
    plan = limbeck.validate(made)
    (choice,) = plan.stages
    (corpus,) = build_corpora(plan, load_tokenizers(plan).of_stage, Console(quiet=True))
    (soft, hard) = weigh_classes(choice, corpus).terms
    assert hard.options["class_weights"] == pytest.approx([10 / 18, 10 / 9, 10 / 3])
    assert "class_weights" not in soft.options
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 0])
    found = OBJECTIVES[hard.objective].call([logits], [], labels, **hard.options)
    weights = torch.tensor(hard.options["class_weights"])
    torch.testing.assert_close(found.total, torch.nn.CrossEntropyLoss(weights, reduction="sum")(logits, labels))
    named = limbeck.validate(made, ["corpus.task.class_weights={anger: 3}"]).stages[0]
    assert weigh_classes(named, corpus).terms[1].options["class_weights"] == (1.0, 3.0, 1.0)


def test_words_are_weighed_by_their_tags(tmp_path):
    names = {"num_labels": 3, "id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}
    teacher = make_teacher(tmp_path, head="token_classification", **names)
    rows = [{"tokens": ["the", "model", "text", "layer"], "ner_tags": ["O", "B-PER", "I-PER", "O"]}] * 5
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = recipe(teacher, tmp_path / "rows.jsonl", tmp_path / "run", "token_classification", class_weights="balanced")
    plan = limbeck.validate(made, ["corpus.task.tags_column=ner_tags"])
    (corpus,) = build_corpora(plan, load_tokenizers(plan).of_stage, Console(quiet=True))
    (hard,) = (term for term in weigh_classes(plan.stages[0], corpus).terms if term.name == "hard_label")
    assert hard.options["class_weights"] == pytest.approx([2 / 3, 4 / 3, 4 / 3])


@pytest.mark.parametrize(
    ("labels", "kind", "line"),
    [
        (
            ["joy"] * 30 + ["anger"],
            "classification",
            "Classes are uneven in 31 rows: fear none, anger 1 (3.2%), joy 30",
        ),
        (
            ["joy|anger", "joy"] * 15,
            "multi_label",
            "Classes are uneven in 30 rows: fear none, anger 15 (50.0%), joy 30",
        ),
    ],
)
def test_uneven_classes_are_told_before_training(several, single, tmp_path, labels, kind, line):
    teacher = several if kind == "multi_label" else single
    plan = limbeck.validate(recipe(teacher, rows(tmp_path, labels), tmp_path / "run", kind))
    told = io.StringIO()
    build_corpora(plan, load_tokenizers(plan).of_stage, Console(file=told, width=200))
    assert line in told.getvalue()


def test_rows_that_are_all_alike_teach_scores_alone(single, tmp_path):
    """Rows of one class are refused where labels are learned, and told where they are not."""
    path = rows(tmp_path, ["joy"] * 30)
    with pytest.raises(CorpusError, match="All 30 rows have the class 'joy', so labels teach nothing: add rows"):
        limbeck.validate(recipe(single, path, tmp_path / "run", "classification"))
    plan = limbeck.validate(recipe(single, path, tmp_path / "run", "classification", {**METHOD, "soft_label_share": 1}))
    told = io.StringIO()
    build_corpora(plan, load_tokenizers(plan).of_stage, Console(file=told, width=200))
    assert "All 30 rows have the class 'joy'; only the teacher's scores are learned." in told.getvalue()


@pytest.mark.parametrize(
    ("kind", "task", "error", "message"),
    [
        ("classification", {}, ModelError, "was fine-tuned for multi label classification .* but the task is classif"),
        ("regression", {}, ModelError, "has 3 outputs, but regression needs exactly 1"),
        (
            "multi_label",
            {"class_weights": {"hope": 2}},
            RecipeError,
            "corpus.task.class_weights names 'hope', which is",
        ),
        ("multi_label", {"class_weights": [1, 2]}, RecipeError, "has 2 weights, but there are 3 classes"),
        ("multi_label", {"class_weights": "even"}, RecipeError, "corpus.task.class_weights"),
        (
            "regression",
            {"class_weights": "balanced"},
            RecipeError,
            "class_weights does not apply to a task of the kind regression",
        ),
        (
            "classification",
            {"label_columns": ["joy"]},
            RecipeError,
            "label_columns does not apply to a task of the kind classification",
        ),
    ],
)
def test_tasks_that_do_not_fit_are_refused(several, tmp_path, kind, task, error, message):
    with pytest.raises(error, match=message) as caught:
        limbeck.validate(recipe(several, rows(tmp_path, ["joy"]), tmp_path / "run", kind, **task))
    assert "\n" not in str(caught.value)


def test_weights_that_no_term_reads_are_refused(several, tmp_path):
    method = {**METHOD, "soft_label_share": 1}
    made = recipe(several, rows(tmp_path, ["joy"]), tmp_path / "run", method=method, class_weights="balanced")
    with pytest.raises(
        RecipeError,
        match="corpus.task.class_weights weights the classes of hard labels, but no stage learns hard labels",
    ):
        limbeck.validate(made)


@pytest.mark.parametrize(
    ("header", "label", "task", "message"),
    [
        ("label", "joy|hope", {}, "rows.tsv:2 has the label 'hope', which is not one of the teacher's classes"),
        ("joy\tanger", "1\t0", {"label_columns": ["joy", "anger"]}, "label_columns has no column for the class 'fear'"),
        ("joy\tanger\tfear", "1\t0\t-1", {"label_columns": [*NAMES]}, "rows.tsv:2, 'fear', has the label '-1': give 1"),
        ("joy\tanger", "1\t0", {"label_columns": [*NAMES]}, "rows.tsv:2 has no column 'fear': set label_columns"),
    ],
)
def test_rows_that_do_not_fit_are_refused(several, tmp_path, header, label, task, message):
    with pytest.raises(CorpusError, match=message) as caught:
        limbeck.distill(recipe(several, rows(tmp_path, [label] * 9, header), tmp_path / "run", **task))
    assert "\n" not in str(caught.value)
