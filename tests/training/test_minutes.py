"""Stages that train for minutes: the number of steps is measured, written, and taken by whoever goes on."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from rich.console import Console
from transformers import TrainerCallback, TrainerControl

from limbeck import distill
from limbeck.core.run_status import status_of
from limbeck.errors import OutputError, RecipeError
from limbeck.recipe.asked import merge_options
from limbeck.training import rate
from limbeck.training.loader import Loader
from limbeck.training.measured_steps import MeasuredSteps
from limbeck.training.sampler import LengthGroupedSampler
from limbeck.training.slower_steps import SlowerSteps
from tests.support.training import assert_equal, die, elsewhere, student_of
from tests.training.conftest import make_recipe, refused


@pytest.fixture
def recipe(bert_folder, text_folder, tmp_path):
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "run", save_steps=1, max_minutes=0.004)
    for name in ("max_steps", "num_train_epochs"):
        del recipe["stages"][0]["training"][name]
    return recipe


class DiesAtSecondStep(TrainerCallback):
    """Ends a run as a kill would; the measurement of the rate has no callbacks of the user."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            die()


def kept(recipe):
    """The recipe in the folder of a run."""
    return yaml.safe_load((Path(recipe["output"]) / "recipe.yaml").read_text())


def test_the_kept_recipe_has_the_steps_and_gives_the_same_student(recipe, tmp_path):
    run = distill(recipe).run
    document = kept(recipe)
    training = document["stages"][0]["training"]
    assert training["max_steps"] == run.stages[0].steps >= 1
    assert "max_minutes" not in training
    assert "0.004 minutes at " in document["reasons"]["stages.0.training.max_steps"]
    # The measurement left nothing: a run of so many steps, which measures nothing, has the same weights.
    document["output"] = str(tmp_path / "again")
    distill(document)
    assert_equal(student_of(recipe), student_of(document))


def test_a_resumed_run_takes_the_written_number(recipe, monkeypatch, tmp_path):
    recipe["stages"][0]["training"]["max_minutes"] = 0.02
    # A busy machine may measure fewer steps than the run needs to die at its second one.
    as_measured = MeasuredSteps(0.02, 5, 0.24)
    monkeypatch.setattr("limbeck.training.run.measure_steps", lambda *arguments, **options: as_measured)
    with pytest.raises(MemoryError):
        distill(recipe, callbacks=[DiesAtSecondStep])
    steps = kept(recipe)["stages"][0]["training"]["max_steps"]
    measured = next(Path(recipe["output"]).glob("stages/*/measured_steps.json"))
    assert json.loads(measured.read_text())["max_steps"] == steps == 5
    changed = elsewhere(recipe, recipe["output"])
    changed["stages"][0]["training"]["max_minutes"] = 5
    with refused("was begun with max_minutes 0.02, which was converted to"):
        distill(changed, resume=True)

    monkeypatch.setattr("limbeck.training.run.measure_steps", die)
    assert distill(recipe, resume=True).run.stages[0].steps == steps
    assert kept(recipe)["stages"][0]["training"]["max_steps"] == steps


def measure(monkeypatch, *, minutes, step_seconds):
    """The measured steps, the seconds of the measurement and its shares, with steps that take these times, then 1 s."""
    time = SimpleNamespace(now=100.0)
    monkeypatch.setattr(rate.time, "monotonic", lambda: time.now)
    shares = []

    def take_steps(*arguments, clock, **options):
        control = TrainerControl()
        clock.on_train_begin(None, None, control)
        waiting = list(step_seconds)
        while not control.should_training_stop:
            time.now += waiting.pop(0) if waiting else 1.0
            clock.on_step_end(SimpleNamespace(device=torch.device("cpu")), None, control)

    monkeypatch.setattr(rate, "_take_steps", take_steps)
    plan = SimpleNamespace(spec=SimpleNamespace(training={"max_minutes": minutes}, title="a"))
    steps = rate.measure_steps(plan, None, None, None, None, seed=0, report=lambda share, *more: shares.append(share))
    return steps, time.now - 100, shares


@pytest.mark.parametrize(
    ("minutes", "step_seconds", "steps", "seconds_of_measurement"),
    [
        # 5 % of ten minutes, behind two slow steps.
        (10, [40, 4], 600, 74),
        # Steps so long that five of them are more than that.
        (10, [12] * 8, 50, 84),
        # A quarter of the minutes has passed before five steps are timed.
        (1, [5] * 4, 12, 15),
        (0.25, [40, 12], 1, 52),
        # A step longer than the minutes.
        (0.25, [40, 30], 1, 70),
    ],
)
def test_the_steps_fill_the_minutes_and_the_measurement_is_short(
    monkeypatch, minutes, step_seconds, steps, seconds_of_measurement
):
    measured, seconds, shares = measure(monkeypatch, minutes=minutes, step_seconds=step_seconds)
    assert (measured.max_steps, seconds) == (steps, seconds_of_measurement)
    assert measured.max_steps == max(1, int(minutes * 60 / measured.seconds_per_step))
    assert shares == sorted(shares) and shares[-1] == 1 > shares[-2]


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(10, "10 minutes at 0.458 s"), (1, "1 minute at"), (0.5, "0.5 minutes at"), (1.5, "1.5 minutes")],
)
def test_minutes_are_singular_only_for_one(minutes, words):
    assert str(MeasuredSteps(minutes, 3, 0.458)).startswith(words)


def test_minutes_take_the_place_of_steps_and_stages_share_them():
    stages = [{"method": "hidden_states", "training": {"max_steps": 300}}, {"method": "minilmv2"}]
    divided = merge_options({"stages": stages}, {"minutes": 10})["stages"]
    assert [stage["training"] for stage in divided] == [{"max_minutes": 5.0}, {"max_minutes": 5.0}]
    stages[1]["training"] = {"max_steps": 100, "learning_rate": 1e-4}
    divided = merge_options({"stages": stages}, {"minutes": 10})["stages"]
    assert [stage["training"]["max_minutes"] for stage in divided] == [7.5, 2.5]
    assert "max_steps" not in divided[1]["training"]
    back = merge_options({"stages": divided}, {"steps": 7})["stages"]
    assert back[0]["training"] == {"max_steps": 7}
    with pytest.raises(RecipeError, match=r"--steps 3 and --minutes 10 both say"):
        merge_options({"stages": stages}, {"minutes": 10, "steps": 3})
    for minutes in (-1.0, 0.0, 2e6, float("nan")):
        with pytest.raises(RecipeError) as caught:
            merge_options({"stages": stages}, {"minutes": minutes})
        line = f"--minutes {minutes:g} is no time to train; give more than 0, up to 1,000,000."
        assert str(caught.value) == line


@pytest.mark.parametrize(
    ("training", "text", "message"),
    [
        ({"max_steps": 5}, {}, "max_minutes and .*max_steps both say how long"),
        ({"num_train_epochs": 1}, {}, "max_minutes and .*num_train_epochs both say how long"),
        ({"max_minutes": 0}, {}, "max_minutes is 0.0; give more than 0"),
        ({}, {"lengths": {16: 0.5, 32: 0.5}}, "max_minutes cannot be combined with text.lengths"),
    ],
)
def test_what_minutes_cannot_be_told_for_is_refused(recipe, training, text, message):
    recipe["stages"][0]["training"] |= training
    recipe["stages"][0]["text"] = text
    with pytest.raises((RecipeError, OutputError), match=message):
        distill(recipe)


@pytest.mark.parametrize(
    ("seconds_a_step", "told_at"),
    [
        (4.9, None),  # 12.25 minutes in place of 10.
        (5.1, 15),
        (9.05, 15),
    ],
)
def test_a_stage_that_takes_longer_than_its_minutes_says_so_once(seconds_a_step, told_at):
    state = SimpleNamespace(global_step=0, max_steps=150, is_world_process_zero=True)
    told = []
    callback = SlowerSteps(
        MeasuredSteps(10.0, 150, 4.0),
        lambda: seconds_a_step * state.global_step,
        lambda first, last: 1.0,
        lambda line: told.append((state.global_step, line)),
    )
    for step in range(1, 151):
        state.global_step = step
        callback.on_step_end(None, state, None)
    assert [step for step, _ in told] == ([] if told_at is None else [told_at])
    if seconds_a_step == 9.05:
        line = told[0][1]
        assert line.startswith("  A step takes 9.05 s now, and took 4 s as the stage began. ")
        assert "So the training takes about 23 min, not 10 min." in line


def test_steps_that_are_slow_by_their_long_rows_are_not_told():
    state = SimpleNamespace(global_step=20, max_steps=150, is_world_process_zero=True)
    lengths = {(0, 20): 1.5}
    callback = SlowerSteps(
        MeasuredSteps(10.0, 150, 4.0), lambda: 1.5 * 4.0 * 20, lambda first, last: lengths[first, last], die
    )
    callback.on_step_end(None, state, None)


def test_the_measured_time_is_that_of_rows_of_mean_length(recipe, monkeypatch):
    # By this clock a step takes a second. A stage of twelve seconds times its third step, whose rows are half as long.
    ticks = itertools.count()
    asked = []

    def relative_length(loader, first, last):
        asked.append((first, last))
        return 0.5

    monkeypatch.setattr(rate, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    monkeypatch.setattr(Loader, "relative_length", relative_length)
    recipe["stages"][0]["training"]["max_minutes"] = 0.2
    stage = distill(recipe).run.stages[0]
    assert stage.steps == 6 and asked[0] == (2, 3)
    assert "0.2 minutes at 2 s a step" in kept(recipe)["reasons"]["stages.0.training.max_steps"]


def test_the_relative_length_of_some_rows():
    lengths = np.random.default_rng(0).integers(1, 500, size=203)
    sampler = LengthGroupedSampler(lengths, 4, seed=1)
    in_order = [int(lengths[row]) for row in sampler]
    mean_length = sum(in_order) / len(in_order)
    # Rows behind the first epoch count as rows of mean length.
    in_order_of_epochs = [*in_order, *[mean_length] * 400]
    for first, last in ((0, 8), (8, 40), (40, 203), (200, 300), (203, 300), (250, 600)):
        rows = in_order_of_epochs[first:last]
        expected = sum(rows) / len(rows) / mean_length
        assert sampler.relative_length(first, last) == pytest.approx(expected, rel=1e-12)
    assert sampler.relative_length(5, 5) == 1.0
    # The order of another epoch changes nothing.
    before = sampler.relative_length(0, 8)
    sampler.set_epoch(1)
    assert sampler.relative_length(0, 8) == before != pytest.approx(1.0, abs=0.01)


def test_the_warning_of_slower_steps_is_printed_by_the_run(recipe, monkeypatch, capsys):
    # Steps of no time at all are slower on any machine.
    monkeypatch.setattr("limbeck.training.run.measure_steps", lambda *_, **__: MeasuredSteps(1e-9, 4, 1e-9))
    recipe["stages"][0]["training"]["max_minutes"] = 1e-9
    distill(recipe, console=Console(width=200))
    assert capsys.readouterr().out.count("as the stage began. So the training takes about") == 1


def test_a_stage_with_other_steps_than_the_measured_ones_follows_no_minutes():
    state = SimpleNamespace(global_step=4, max_steps=8, is_world_process_zero=True)
    SlowerSteps(MeasuredSteps(1e-9, 4, 1e-9), lambda: 60.0, lambda *_: 1.0, die).on_step_end(None, state, None)


def test_the_status_names_the_measurement(recipe, monkeypatch):
    activities = []

    def look(*_, **__):
        activities.append(status_of(Path(recipe["output"])).activity)
        return MeasuredSteps(0.004, 2, 0.1)

    monkeypatch.setattr("limbeck.training.run.measure_steps", look)
    distill(recipe)
    assert activities == ["measuring the rate"]
