"""Stages with teachers, students and corpora of their own, heads, and mappings that are measured."""

import json
from string import Template

import pytest
import torch
from rich.console import Console
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

import limbeck
from limbeck import errors
from limbeck.models.loading import load_model
from limbeck.training.stage import StageTraining
from tests.support.methods import TRAINING, run_card, write_rows
from tests.support.models import make_teacher
from tests.support.training import assert_ends_like, elsewhere
from tests.training.conftest import REFUSALS, refused


@pytest.fixture(scope="module")
def lm_teacher(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("lm"), "bert", head="masked_lm")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("classifier"), "bert", head="classification", num_labels=3)


@pytest.fixture
def recipe(tiny_recipe):
    """One stage of a few steps; tests add to it."""
    tiny_recipe["stages"][0]["training"] = {**TRAINING, "max_steps": 3}
    return tiny_recipe


def stage(name, method, steps=3, **more):
    return {"name": name, "method": method, "training": {**TRAINING, "max_steps": steps}, **more}


SMALL = {"layers": 2, "hidden": 24, "heads": 4, "ffn": 48}


def test_a_teacher_assistant_teaches_the_student_and_is_kept_when_the_run_is_resumed(recipe, monkeypatch):
    recipe["student"] = {"shape": SMALL}
    recipe["stages"] = [
        stage("assistant", "minilm", student={"shape": {**SMALL, "layers": 4}}),
        stage("student", "minilm", teacher={"stage": "assistant"}),
    ]
    whole = elsewhere(recipe, recipe["output"] + "-whole")
    result = limbeck.distill(whole)
    assistant = AutoModel.from_pretrained(result.student.parent / "stages" / "1-assistant" / "student")
    student = AutoModel.from_pretrained(result.student)
    for model, layers in ((assistant, 4), (student, 2)):
        assert (model.config.num_hidden_layers, model.config.hidden_size) == (layers, 24)
    first, second = result.record["stages"]
    assert first["student"]["shape"].startswith("bert 4x24")
    assert second["teacher"] == "the student of stage 'assistant'"
    original = StageTraining.run

    def stop_at_the_second(self):
        if self.plan.spec.title == "student":
            raise KeyboardInterrupt
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(StageTraining, "run", stop_at_the_second)
        with pytest.raises(errors.Interrupted):
            limbeck.distill(recipe)
    assert_ends_like(recipe, whole)


def test_hidden_states_then_output_distribution_on_one_student(recipe, lm_teacher):
    recipe["teacher"]["model"] = str(lm_teacher)
    recipe["student"] = {"shape": SMALL}
    recipe["stages"] = [stage("layers", "hidden_states"), stage("scores", "output_distribution")]
    result = limbeck.distill(recipe)
    student = AutoModelForMaskedLM.from_pretrained(result.student)
    assert student.config.hidden_size == 24
    first, second = result.record["stages"]
    assert any(name.startswith("cls.") for name in first["untrained"])
    assert not second["untrained"]
    assert result.record["untrained"]["names"] == []


def test_a_head_of_equal_width_starts_from_the_teachers(recipe, lm_teacher):
    recipe["teacher"]["model"] = str(lm_teacher)
    recipe["student"] = {"shape": {**SMALL, "hidden": 48}, "initialise": {"layers": "uniform"}}
    recipe["stages"] = [
        stage("scores", "output_distribution", training={**TRAINING, "max_steps": 1, "learning_rate": 1e-9})
    ]
    result = limbeck.distill(recipe)
    student, teacher = (load_model(str(f), head="masked_lm") for f in (result.student, lm_teacher))
    own, theirs = dict(student.named_parameters()), dict(teacher.named_parameters())
    name = "cls.predictions.transform.dense.weight"
    torch.testing.assert_close(own[name], theirs[name], atol=1e-6, rtol=0)
    assert name in result.record["student"]["initialisation"]["head"]["copied"]


def test_contribution_is_measured_and_kept(recipe):
    recipe["stages"] = [stage("layers", {"name": "hidden_states", "mapping": "contribution"})]
    result = limbeck.distill(recipe)
    cosines = json.loads((result.student.parent / "stages" / "1-layers" / "layer_cosines.json").read_text())
    assert len(cosines) == 4
    lowest = sorted(sorted(range(4), key=lambda i: cosines[i])[:2])
    assert sorted(result.record["stages"][0]["final_terms"]) == [
        f"hidden_{i}_{layer + 1}" for i, layer in enumerate(lowest, start=1)
    ]


def test_a_truncated_teacher_needs_no_stage(recipe):
    recipe |= {
        "stages": [],
        "student": {"shape": {**SMALL, "hidden": 48, "ffn": 96}, "initialise": {"layers": "first"}},
    }
    result = limbeck.distill(recipe)
    student, teacher = load_model(str(result.student)), load_model(recipe["teacher"]["model"])
    theirs = dict(teacher.named_parameters())
    for name, parameter in student.named_parameters():
        if "pooler" not in name:
            assert torch.equal(parameter, theirs[name]), name


def test_text_first_and_a_task_second(recipe, classifier, tmp_path):
    """General distillation, then task-specific, each on its corpus with its teacher; the card's code runs."""
    rows = write_rows(tmp_path / "rows", "classification")
    recipe["student"] = {"shape": SMALL}
    recipe["stages"] = [
        stage("general", "minilm"),
        stage("task", "output_distribution", corpus=rows, teacher={"model": str(classifier)}),
    ]
    recipe["evaluation"] = {"enabled": True, "quality": False, "speed": False}
    result = limbeck.distill(recipe)
    student = AutoModelForSequenceClassification.from_pretrained(result.student)
    assert student.config.num_labels == 3
    task = result.metrics["task"]
    assert task["metric"] == "accuracy"
    assert 0 <= task["agreement"] <= 1
    assert (
        "Agreement on rows the teacher may have been trained on"
        in (result.student.parent / "evaluation.md").read_text()
    )
    card = (result.student / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card
    assert "A text classifier (bert 2x24" in card
    assert run_card(result.student)[0] in student.config.id2label.values()


@pytest.mark.parametrize("case", REFUSALS["rows"], ids=lambda case: case[1])
def test_labels_and_heads_that_do_not_fit_are_refused(recipe, classifier, lm_teacher, tmp_path, case):
    other = make_teacher(tmp_path / "other", "roberta", head="classification", num_labels=3)
    rows = write_rows(tmp_path / "rows", "classification")
    recipe |= {"student": {"shape": SMALL}, "teacher": {"model": str(classifier)}, "corpus": rows}
    recipe["stages"] = [stage("a", "output_distribution")]
    limbeck.validate(recipe)
    kind, line, *overrides = case
    with refused(line, getattr(errors, kind)):
        limbeck.validate(recipe, [Template(one).substitute(lm=lm_teacher, other=other) for one in overrides])


def test_a_label_that_is_none_of_the_classes_is_named(recipe, classifier, tmp_path):
    rows = write_rows(tmp_path / "rows", "classification")
    path = tmp_path / "wrong.tsv"
    path.write_text("sentence1\tsentence2\tlabel\nthe text\tthe model\t7\nthe\tof\t1\n", encoding="utf-8")
    recipe |= {"teacher": {"model": str(classifier)}, "corpus": {**rows, "sources": [str(path)]}}
    recipe["stages"] = [stage("a", "output_distribution")]
    with refused("7", errors.CorpusError):
        limbeck.distill(recipe)


def test_one_process_is_not_sharded(recipe):
    recipe["stages"] = [stage("a", "minilmv2")]
    recipe["stages"][0]["training"]["fsdp"] = True
    with refused("training.fsdp shards over several GPUs", errors.RecipeError):
        limbeck.distill(recipe)


def test_a_stage_without_scores_knows_the_classes_of_the_stage_that_teaches_them(recipe, classifier, tmp_path):
    """MLKD-BERT's first stage reads no label: its teacher may be any encoder."""
    rows = write_rows(tmp_path / "rows", "classification")
    path = tmp_path / "named.tsv"
    lines = (tmp_path / "rows" / "classification.tsv").read_text().splitlines()
    named = [line.rsplit("\t", 1)[0] + f"\tLABEL_{line[-1]}" for line in lines[1:]]
    path.write_text("\n".join([lines[0], *named]) + "\n")
    recipe |= {"student": {"shape": SMALL}, "corpus": {**rows, "sources": [str(path)]}}
    recipe["stages"] = [
        stage("layers", {"name": "mlkd_bert", "stage": 1}),
        stage("prediction", {"name": "mlkd_bert", "stage": 2}, teacher={"model": str(classifier)}),
    ]
    plan = limbeck.validate(recipe)
    assert [choice.corpus.labels for choice in plan.stages] == [("LABEL_0", "LABEL_1", "LABEL_2")] * 2
    assert limbeck.distill(recipe).record["status"] == "finished"


def test_a_run_says_which_layers_learn_from_others_than_they_start_from(recipe, capsys):
    layers = len(AutoModel.from_pretrained(recipe["teacher"]["model"]).encoder.layer)
    recipe["student"] = {"shape": layers - 1, "initialise": {"layers": "ends"}}
    recipe["stages"][0]["method"] = {"name": "hidden_states", "mapping": "uniform"}
    limbeck.distill(recipe, console=Console(width=500))
    [line] = [line for line in capsys.readouterr().out.splitlines() if "learns from its" in line]
    assert line.startswith("stage hidden_states: layer ")
    assert "set mapping: ends in the method" in line

    agreeing = elsewhere(recipe, recipe["output"] + "-again")
    agreeing["stages"][0]["method"]["mapping"] = "ends"
    limbeck.distill(agreeing, console=Console(width=500))
    assert "learns from its" not in capsys.readouterr().out
