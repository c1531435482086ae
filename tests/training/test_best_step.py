"""The step whose student is kept: chosen by measurements, by the names of transformers, and resumed exactly."""

import json
from pathlib import Path

import pytest
from transformers import EarlyStoppingCallback, TrainerCallback

import limbeck
from limbeck import distill
from limbeck.errors import OutputError, RecipeError
from limbeck.report.collect import collect
from limbeck.report.run_warnings import warnings_of
from limbeck.training.development import DevelopmentScores
from limbeck.training.trainer import DistillationTrainer
from tests.support.mrpc_recipe import mrpc_recipe
from tests.support.training import assert_equal, die, elsewhere, log_of, student_of
from tests.training.conftest import make_recipe

BEST = {"load_best_model_at_end": True, "save_steps": 1, "eval_steps": 1, "save_total_limit": 1}


@pytest.fixture
def scores_of(monkeypatch):
    """Let the scores on development rows be given ones, by the number of the measurement."""

    def give(*values):
        steps = []

        def scores(self):
            step = self.now()
            steps.append(step)
            return {"accuracy": values[min(step, len(values)) - 1], "f1": 0.5}

        original = DistillationTrainer.__init__

        def initialise(trainer, *arguments, **options):
            original(trainer, *arguments, **options)
            DevelopmentScores.now = lambda self: trainer.state.global_step

        monkeypatch.setattr(DevelopmentScores, "now", None, raising=False)
        monkeypatch.setattr(DistillationTrainer, "__init__", initialise)
        monkeypatch.setattr(DevelopmentScores, "scores", scores)

    return give


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The recipe, whose teacher and rows all tests share."""
    return mrpc_recipe(tmp_path_factory.mktemp("mrpc"))


@pytest.fixture
def recipe(made, tmp_path):
    recipe = elsewhere(made, tmp_path / "run")
    recipe["stages"][0]["training"] |= BEST | {"lr_scheduler_type": "constant", "metric_for_best_model": "accuracy"}
    return recipe


def shortened(recipe, steps, output):
    """A recipe that ends at a step, whose student is that of the last step."""
    short = elsewhere(recipe, output)
    training = short["stages"][0]["training"]
    for name in ("load_best_model_at_end", "metric_for_best_model"):
        training.pop(name)
    training["max_steps"] = steps
    return short


def test_the_student_is_that_of_the_best_step_and_its_rows_stay_out_of_the_card(recipe, scores_of, tmp_path):
    scores_of(0.1, 0.9, 0.3, 0.2, 0.2, 0.2, 0.2)
    result = distill(recipe)
    short = shortened(recipe, 2, tmp_path / "short")
    distill(short)
    assert_equal(student_of(recipe), student_of(short))

    best = result.run.stages[0].best
    assert (best.step, best.metric, best.value, best.on_development) == (2, "accuracy", 0.9, True)
    assert (best.stopped_at, best.planned_steps, result.run.ended_early) == (7, 7, None)
    assert best.scored_by_step is None and result.run.stages[0].scored_by_step is None, "of all rows"
    (figures,) = result.run.evaluation.development
    assert figures.chose_step and figures.student
    assert f"{best}." in list(warnings_of(collect([Path(recipe["output"])])[0]))
    card = (result.student / "README.md").read_text()
    assert "**Best step.** The student is that of step 2, which development rows chose" in card
    assert "on development rows" not in card.partition("---\n# ")[0].replace("Best step", "")
    assert "metric_value" not in card and "model-index" not in card
    # The scores are in the log once, under their own names.
    assert not any("eval_accuracy" in line for line in log_of(recipe))


def test_a_choice_by_a_part_of_the_development_rows_is_recorded(recipe, scores_of, monkeypatch):
    monkeypatch.setattr("limbeck.training.development.MOST_ROWS_BY_STEP", 8)
    scores_of(0.1, 0.9, 0.3, 0.2, 0.2, 0.2, 0.2)
    [stage] = distill(recipe).run.stages
    assert str(stage.scored_by_step) == "8 of the 12 development rows"
    assert stage.best.scored_by_step == stage.scored_by_step
    assert (stage.best.task, stage.best.split) == ("mrpc", "validation")
    # The loss is measured on all rows.
    by_loss = elsewhere(recipe, recipe["output"] + "-by-loss")
    by_loss["stages"][0]["training"]["metric_for_best_model"] = "loss"
    [stage] = distill(by_loss).run.stages
    assert str(stage.scored_by_step) == "8 of the 12 development rows" and stage.best.scored_by_step is None


def test_early_stopping_is_resumed_with_its_counts(recipe, scores_of, tmp_path):
    scores_of(0.5, 0.9, 0.3, 0.2, 0.1, 0.1, 0.1)
    # The callback of transformers and the keys of a recipe are the same.
    uninterrupted = elsewhere(recipe, tmp_path / "whole")
    whole_run = distill(uninterrupted, callbacks=[EarlyStoppingCallback(early_stopping_patience=3)]).run
    recipe["stages"][0]["training"] |= {"early_stopping_patience": 3}
    best = whole_run.stages[0].best
    assert (best.step, best.stopped_at, whole_run.stages[0].steps) == (2, 5, 5)
    assert "early stopping ended the stage at step 5 of 7" in str(best)

    class Dies(TrainerCallback):
        """Ends the run as a kill would, at the beginning of a step."""

        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 4:
                die()

    with pytest.raises(MemoryError):
        distill(recipe, callbacks=[Dies])
    run = distill(recipe, resume=True).run
    assert run.stages[0].best == best
    assert_equal(student_of(recipe), student_of(uninterrupted))


def test_a_stage_that_was_stopped_early_is_not_trained_on(recipe, scores_of, monkeypatch):
    scores_of(0.9, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1)
    recipe["stages"][0]["training"] |= {"early_stopping_patience": 2}
    with monkeypatch.context() as patch:
        patch.setattr(DistillationTrainer, "load_best", die)
        with pytest.raises(MemoryError):
            distill(recipe)
    names = sorted(path.name for path in Path(recipe["output"]).glob("stages/*/checkpoint-*"))
    assert names == ["checkpoint-1", "checkpoint-3"]
    monkeypatch.setattr(DistillationTrainer, "train", die)
    run = distill(recipe, resume=True).run
    assert (run.stages[0].steps, run.stages[0].best.step) == (3, 1)


def test_held_out_text_chooses_by_its_loss(bert_folder, text_folder, tmp_path):
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "run", **(BEST | {"save_steps": 2, "eval_steps": 2}))
    recipe["evaluation"] = {"speed": False, "pairs": 20, "retrieval_pairs": 20}
    result = distill(recipe)
    best = result.run.stages[0].best
    losses = {line["step"]: line["eval_loss"] for line in log_of(recipe) if "eval_loss" in line}
    assert best.metric == "loss" and not best.on_development
    assert best.value == min(losses.values())
    assert result.run.evaluation.chose_step
    assert result.run.evaluation.agreement is not None
    assert result.run.evaluation.without_rows_that_chose().agreement is None
    changed = elsewhere(recipe, recipe["output"])
    changed["stages"][0]["training"]["eval_steps"] = 1
    record = json.loads((Path(recipe["output"]) / "run.json").read_text())
    assert record["stages"][0]["best"]["step"] == best.step
    with pytest.raises(OutputError, match="eval_steps = 2, but this recipe has 1"):
        distill(changed, resume=True)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (
            {"load_best_model_at_end": False},
            "metric_for_best_model has an effect only with.*load_best_model_at_end: true",
        ),
        ({"metric_for_best_model": "acuracy"}, "'acuracy', which is not measured.*accuracy"),
        ({"eval_strategy": "no"}, "load_best_model_at_end needs measurements"),
        ({"fsdp": True}, "load_best_model_at_end does not work with fsdp"),
        ({"eval_steps": 2, "save_steps": 3}, "saving steps to be a round multiple"),
        ({"early_stopping_patience": 0}, "early_stopping_patience is 0; give at least 1"),
    ],
)
def test_what_chooses_no_step_is_refused(recipe, training, message):
    recipe["stages"][0]["training"] |= training
    with pytest.raises(RecipeError, match=message):
        limbeck.distill(recipe)
