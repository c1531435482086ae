"""The untrained start of a student with the head of a task, which is scored beside the student."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

import limbeck
from limbeck.core.records import RunEvaluation
from limbeck.errors import ModelError
from limbeck.models.loading import load_config, load_model
from limbeck.models.start_head import names_of_head
from limbeck.recipe import chosen_models
from limbeck.report.collect import collect
from limbeck.report.page import build_page
from limbeck.report.run import run_summary
from limbeck.training import distil, student_maker
from limbeck.training import run as run_module
from tests.support.methods import tiny_run, write_queries, write_rows
from tests.support.models import make_teacher, save_folder, tiny_model
from tests.support.mrpc_recipe import mrpc_recipe
from tests.support.recipes import TRAINING

NO_START = (
    "No untrained start: the student cannot start with its teacher's head, and a random head knows nothing of the task."
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A recipe on MRPC, whose classifier is as wide as its teacher, and whose training changes next to nothing."""
    made = mrpc_recipe(tmp_path_factory.mktemp("mrpc"))
    made["student"] = {"shape": 2, "dropout": 0.0, "initialise": {"layers": "ends"}}
    training = made["stages"][0]["training"]
    training |= {"max_steps": 1, "learning_rate": 1e-30, "optim": "sgd"}
    return made


def evaluation_of(recipe, output, **changes):
    """The evaluation of a recipe's run, its table and its card."""
    result = limbeck.distill(recipe | {"output": str(output)} | changes)
    record = json.loads((output / "run.json").read_text(encoding="utf-8"))
    card = Path(result.student, "README.md").read_text(encoding="utf-8")
    return RunEvaluation.read(record["evaluation"]), (output / "evaluation.md").read_text(encoding="utf-8"), card


def test_a_classifier_stands_beside_its_untrained_start(recipe, tmp_path):
    evaluation, table, card = evaluation_of(recipe, tmp_path / "run")
    [scores] = evaluation.development
    # Training has changed nothing, so the student is the start: teacher layers with the teacher's head.
    assert scores.start == scores.student and scores.start
    row = f"| ↳ untrained start | – | {scores.start['accuracy']:.3f} |"
    for text in (table, card):
        assert row in text
        assert "Starts from teacher layers 1, 4 and copied embeddings." in text
        assert "The head is from the same model." in text
    assert "worse than the untrained start" not in table


def test_the_layers_of_a_start_are_fitted_where_there_is_text_for_it(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(chosen_models, "_TRAINED_TOKENS_PER_FITTED", 1)
    stage = recipe["stages"][0]
    stages = [stage | {"training": stage["training"] | {"max_steps": 7}}]
    evaluation, table, _ = evaluation_of(recipe, tmp_path / "run", stages=stages)
    assert evaluation.development[0].start and evaluation.start.fitted_tokens
    assert "and one with the same layers fitted to the teacher on" in table
    assert "This may flatter the training, because a fit to more text can be better: `limbeck distill --st" in table


def test_a_fit_never_lowers_a_score_of_the_start(recipe, tmp_path, monkeypatch):
    """Each score is that of the better student: of the copied layers, or of the fitted ones."""
    evaluation, _, _ = evaluation_of(recipe, tmp_path / "copied")
    [as_copied] = evaluation.development
    monkeypatch.setattr(chosen_models, "_TRAINED_TOKENS_PER_FITTED", 1)
    stage = recipe["stages"][0]
    stages = [stage | {"training": stage["training"] | {"max_steps": 7}}]

    def scores_of_fit(made):
        # The fitted student is the worse one: its head is turned around.
        fitted = made.models[1]
        with torch.no_grad():
            fitted.classifier.weight.neg_()
            fitted.classifier.bias.neg_()
        return made

    original = run_module.make_untrained
    monkeypatch.setattr(run_module, "make_untrained", lambda makers: scores_of_fit(original(makers)))
    evaluation, _, _ = evaluation_of(recipe, tmp_path / "fitted", stages=stages)
    [beside_fit] = evaluation.development
    assert evaluation.start.fitted_tokens
    for metric, score in as_copied.start.items():
        assert beside_fit.start[metric] >= score, metric


@pytest.fixture
def no_start_is_made(monkeypatch):
    """Nothing is copied or fitted for an untrained start: `make_student` runs once, for the student itself."""
    original = student_maker.make_student
    students = []

    def make_student(*args, **options):
        assert not students, "an untrained start was made"
        students.append(args)
        return original(*args, **options)

    monkeypatch.setattr(student_maker, "make_student", make_student)


@pytest.mark.parametrize("student", [
    {"shape": {"layers": 2, "hidden": 24, "heads": 4, "ffn": 48}, "initialise": {"layers": "ends"}},
    {"shape": 2, "initialise": {"layers": "ends", "embeddings": "random"}},
], ids=["narrower", "other embeddings"])  # fmt: skip
@pytest.mark.usefixtures("no_start_is_made")
def test_a_head_that_is_not_the_teachers_gives_no_start(recipe, tmp_path, student):
    evaluation, table, _ = evaluation_of(recipe, tmp_path / "run", student=student)
    assert not evaluation.development[0].start
    assert "untrained start |" not in table and NO_START in table


@pytest.mark.usefixtures("no_start_is_made")
def test_a_teacher_without_the_head_gives_no_start(recipe, tmp_path):
    teacher = {"model": str(make_teacher(tmp_path))}
    # It learns from labels and hidden states alone.
    method = {"name": "bert_pkd", "soft_label_share": 0.0, "mapping": "uniform"}
    stages = [recipe["stages"][0] | {"method": method}]
    evaluation, table, _ = evaluation_of(recipe, tmp_path / "run", teacher=teacher, stages=stages)
    assert not evaluation.development[0].start and NO_START in table


def test_a_student_is_compared_with_the_trained_model_that_it_starts_from(recipe, tmp_path):
    limbeck.distill(recipe | {"output": str(tmp_path / "first")})
    first = str(tmp_path / "first" / "student")
    student = {"shape": 2, "dropout": 0.0, "initialise": {"checkpoint": first}}
    evaluation, table, card = evaluation_of(recipe, tmp_path / "run", student=student)
    start = evaluation.development[0].start
    assert start == evaluation.development[0].student
    assert evaluation.start.trained_model == first
    for text in (table, card):
        assert f"| ↳ trained start | – | {start['accuracy']:.3f} |" in text
        assert "Trained start: the trained model that this run began with." in text
        assert "untrained start" not in text.lower()
    summary = f"Starts from the model '{first}', which is trained already."
    assert f"{summary} The head is from the same model." in table
    # A card that is published names the run, and no path of this machine.
    assert "**Initialisation.** Starts from the model 'first', which is trained already." in card
    assert str(tmp_path) not in card

    [run] = collect([tmp_path / "run"])
    [overview] = [section for section in build_page([run]).parts[0].sections if section.title == "Overview"]
    assert dict(overview.blocks[0].pairs)["Initialisation"] == summary.rstrip(".")
    assert f"; the trained start has {start['accuracy']:.3f}" in run_summary(run).result


def test_a_model_that_was_saved_without_training_is_an_untrained_start(recipe, tmp_path):
    limbeck.distill(recipe | {"output": str(tmp_path / "first"), "stages": []})
    first = str(tmp_path / "first" / "student")
    student = {"shape": 2, "dropout": 0.0, "initialise": {"checkpoint": first}}
    evaluation, table, _ = evaluation_of(recipe, tmp_path / "run", student=student)
    assert evaluation.start.trained_model is None and evaluation.development[0].start
    assert "↳ untrained start" in table and f"Starts from the model '{first}'. The head" in table


def ranking_recipe(folder):
    """The recipe of a reranker that is as wide as its teacher, with held-out rows; training changes next to nothing."""
    model = tiny_model("bert", head="ranking", num_labels=1)
    teacher = save_folder(model, folder / "teacher", "bert")
    made = tiny_run("reranker", teacher, write_queries(folder / "rows", 17), folder / "run", max_steps=1)
    made["student"] = {"shape": 2, "dropout": 0.0, "initialise": {"layers": "ends"}}
    made["corpus"]["held_out"] = 0.3
    made["stages"][0]["training"] |= {"learning_rate": 1e-30, "optim": "sgd"}
    made["stages"][0]["method"] = {"name": "reranker", "loss": "margin_mse"}
    return made


def test_rows_held_out_from_the_training_files_have_the_start_too(tmp_path):
    made = ranking_recipe(tmp_path)
    evaluation, table, _ = evaluation_of(made, tmp_path / "run", evaluation={"speed": False})
    task = evaluation.task
    assert task is not None and task.start_agreement == pytest.approx(task.agreement)
    assert task.start["ndcg_at_10"] == pytest.approx(task.student)
    assert f"| ↳ untrained start | – | {task.start_agreement:.3f} |" in table
    assert "| ↳ nDCG@10 of the untrained start | – |" in table
    assert "or in a task file that you give as the corpus." in table


@pytest.mark.usefixtures("no_start_is_made")
def test_no_start_is_made_where_no_rows_are_held_out_to_score(tmp_path):
    made = ranking_recipe(tmp_path)
    made["corpus"]["held_out"] = 0
    evaluation, table, _ = evaluation_of(made, tmp_path / "run", evaluation={"speed": False})
    assert evaluation.start is None and "untrained start" not in table


def test_a_measurement_of_0_steps_that_fails_leaves_the_record_of_the_saved_student(recipe, tmp_path, monkeypatch):
    def fail(*_):
        raise ModelError("The model cannot be measured.")

    monkeypatch.setattr(distil, "evaluate_student", fail)
    with pytest.raises(ModelError, match="cannot be measured"):
        limbeck.distill(recipe | {"output": str(tmp_path / "run")}, steps=0)
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert record["status"] == "failed" and record["problem"] == "The model cannot be measured."
    assert (tmp_path / "run" / "student").is_dir()


def test_a_student_of_0_steps_keeps_its_teachers_head_and_is_scored(recipe, tmp_path):
    asked = dict(recipe, output=str(tmp_path / "run"))
    result = limbeck.distill(asked, steps=0)
    assert result.record["stages"] == [] and result.record["student"]["head"] == "classification"
    record = RunEvaluation.read(result.record["evaluation"])
    trained, _, card_of_trained = evaluation_of(recipe, tmp_path / "trained")
    [scores] = record.development
    assert scores.student == trained.development[0].student and not scores.start
    assert scores.rows == 12 and scores.teacher
    card = Path(result.student, "README.md").read_text(encoding="utf-8")
    for text in (card, card_of_trained):
        assert "pipeline_tag: text-classification" in text and "AutoModelForSequenceClassification" in text
    # The folder is a classifier with the names of its teacher's classes.
    student = load_model(str(result.student), head="classification")
    assert student.config.id2label == load_config(recipe["teacher"]["model"]).id2label


def test_a_student_of_0_steps_that_cannot_have_the_head_says_so(recipe, tmp_path, capsys):
    student = {"shape": {"layers": 2, "hidden": 24, "heads": 4, "ffn": 48}, "initialise": {"layers": "ends"}}
    asked = dict(recipe, output=str(tmp_path / "run"), student=student)
    result = limbeck.distill(asked, steps=0, console=Console(width=500))
    assert result.record["student"]["head"] is None
    line = "the student is saved without the head of its teacher, and so without scores: that head fits only a student"
    assert line in capsys.readouterr().out


def test_a_reranker_of_0_steps_is_scored_on_held_out_queries(tmp_path):
    made = ranking_recipe(tmp_path) | {"stages": []}
    evaluation, table, card = evaluation_of(made, tmp_path / "run", evaluation={"speed": False})
    task = evaluation.task
    assert task is not None and task.agreement is not None and task.student is not None
    assert "held out from the training files" in table and "of stage" not in table
    assert "pipeline_tag: text-ranking" in card


def test_rows_without_labels_of_0_steps_give_the_agreement_alone(recipe, tmp_path):
    rows = tmp_path / "texts.txt"
    rows.write_text("".join(f"the model has {number} layers\n" for number in range(20)), encoding="utf-8")
    corpus = {"sources": [str(rows)], "length": 32, "held_out": 0.3}
    corpus["task"] = {"kind": "classification", "labelled": False}
    evaluation, table, _ = evaluation_of(recipe, tmp_path / "run", stages=[], corpus=corpus)
    task = evaluation.task
    assert task is not None and task.labelled is False and task.agreement is not None
    assert "Agreement with the teacher on held-out rows without labels" in table


@pytest.mark.parametrize(("kind", "changes"), [
    ("multi_label", {"num_labels": 3, "problem_type": "multi_label_classification"}),
    ("regression", {"num_labels": 1}),
    ("token_classification", {"num_labels": 3}),
    ("question_answering", {}),
])  # fmt: skip
def test_the_start_of_every_kind_has_the_scores_of_0_steps(tmp_path, kind, changes):
    teacher = make_teacher(tmp_path, head=kind, **changes)
    corpus = write_rows(tmp_path / "rows", kind)
    student = {"shape": 2, "dropout": 0.0, "initialise": {"layers": "ends"}}
    method = {"name": "output_distribution"}
    training = TRAINING | {"max_steps": 1, "learning_rate": 1e-30, "optim": "sgd"}
    asked = {"name": "tiny", "teacher": {"model": str(teacher)}, "student": student, "corpus": corpus}
    asked |= {"stages": [{"method": method, "training": training}], "evaluation": {"speed": False}}
    trained, _, _ = evaluation_of(asked, tmp_path / "trained")
    untrained, table, card = evaluation_of(asked, tmp_path / "untrained", stages=[])
    assert trained.task is not None and untrained.task is not None
    assert untrained.task.student is not None and untrained.task.agreement is not None
    assert trained.task.start_agreement == pytest.approx(untrained.task.agreement)
    assert trained.task.start[untrained.task.metric] == pytest.approx(untrained.task.student)
    assert "untrained start" not in table
    assert "AutoModelFor" in card


def test_rows_that_were_cut_into_windows_count_once(tmp_path):
    teacher = make_teacher(tmp_path, head="token_classification", num_labels=3)
    corpus = write_rows(tmp_path / "rows", "token_classification") | {"length": 5}
    asked = {"name": "tiny", "teacher": {"model": str(teacher)}, "student": {"shape": 2}, "corpus": corpus}
    method = {"name": "output_distribution"}
    asked |= {"stages": [{"method": method, "training": TRAINING | {"max_steps": 1}}], "evaluation": {"speed": False}}
    evaluation, table, _ = evaluation_of(asked, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    held_out = record["corpus"]["held_out_documents"]
    assert evaluation.task.rows == held_out and f"Task: {held_out} rows held out" in table


def test_a_head_has_its_pooler_and_not_what_is_tied_to_the_embeddings():
    classifier = tiny_model("bert", head="classification", layers=1)
    names = ["pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias"]
    assert names_of_head(classifier) == names
    names = names_of_head(tiny_model("bert", head="masked_lm", layers=1))
    assert "cls.predictions.decoder.weight" not in names and "cls.predictions.transform.dense.weight" in names
