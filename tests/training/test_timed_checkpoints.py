"""Checkpoints by time: at which steps they are saved, and that a killed run of few steps continues from one."""

import random
import signal
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState

import limbeck
from limbeck.training import timed_checkpoints
from limbeck.training.timed_checkpoints import TimedCheckpoints, saves_by_time
from tests.support.together import distil
from tests.support.training import assert_ends_like, assert_equal, at_step, elsewhere, kill_at, send, student_of
from tests.training.conftest import make_recipe


def steps_saved(monkeypatch, seconds_of_steps, *, first_step=0):
    """The steps at which a checkpoint is asked for, of a training whose steps take these seconds; and the looks."""
    clock = SimpleNamespace(now=100.0)
    looks = []

    def look(answers):
        looks.append(clock.now)
        return answers

    monkeypatch.setattr(timed_checkpoints.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(timed_checkpoints, "broadcast", look)
    callback = TimedCheckpoints()
    callback.on_train_begin(None, TrainerState(global_step=first_step), TrainerControl())
    saved = []
    for step, seconds in enumerate(seconds_of_steps, start=first_step + 1):
        clock.now += seconds
        control = TrainerControl()
        callback.on_step_end(None, TrainerState(global_step=step), control)
        if control.should_save:
            saved.append(step)
            callback.on_save(None, TrainerState(global_step=step), control)
    return saved, looks


@pytest.mark.parametrize(
    ("seconds_of_steps", "options", "saved"),
    [
        ([4.0] * 149, {}, [75]),
        # A run that continues counts from its checkpoint.
        ([4.0] * 139, {"first_step": 10}, [85]),
        # Kernels are compiled in the first step.
        ([60.0] + [4.0] * 148, {}, [61, 136]),
        ([0.1] * 2000, {}, []),
        # Steps beyond all measure.
        ([400.0] * 3, {}, [1, 2, 3]),
    ],
)
def test_a_checkpoint_is_saved_about_every_five_minutes(monkeypatch, seconds_of_steps, options, saved):
    assert steps_saved(monkeypatch, seconds_of_steps, **options)[0] == saved


def test_steps_of_very_different_times_do_not_delay_a_checkpoint(monkeypatch):
    # Batches of short and of long texts, which become slower for good at step 300, as with a schedule of lengths.
    draw = random.Random(5)
    seconds = [draw.choice((0.05, 0.5, 4.0)) for _ in range(300)] + [draw.choice((2.0, 20.0)) for _ in range(300)]
    saved, looks = steps_saved(monkeypatch, seconds)
    times = [0.0, *(sum(seconds[:step]) for step in saved)]
    between = [second - first for first, second in pairwise(times)]
    assert min(between) > 290
    assert max(between) < 400
    assert len(looks) < len(seconds)


def test_quick_steps_are_hardly_ever_looked_at(monkeypatch):
    _, looks = steps_saved(monkeypatch, [0.01] * 20_000)
    assert len(looks) < 30


@pytest.mark.parametrize(
    ("training", "by_time"),
    [
        ({"max_steps": 10}, True),
        ({"save_total_limit": 1}, True),
        ({"save_steps": 500}, False),
        ({"save_strategy": "epoch"}, False),
        ({"save_total_limit": None}, False),
    ],
)
def test_a_recipe_that_says_when_to_save_is_obeyed(training, by_time):
    assert saves_by_time(training) is by_time


def test_a_run_whose_recipe_says_when_to_save_has_no_others(bert_folder, text_folder, tmp_path):
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "run", max_steps=6, save_steps=4)
    with always_due():
        kill_at(recipe, 6)
    assert checkpoints(recipe) == ["checkpoint-4"]


@contextmanager
def always_due():
    """Save at every look at the clock: these steps are so quick that the looks are at steps 1, 3, 7, 15, …"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timed_checkpoints, "MINUTES", 0.0)
        yield


@contextmanager
def killed_at_sixth_step():
    with always_due(), at_step(6, send(signal.SIGKILL)):
        yield


def recipe_of_few_steps(teacher, text, output, **training):
    """Nine steps, which are fewer than the default of `save_steps`."""
    recipe = make_recipe(teacher, text, output, max_steps=9, **training)
    # `recipe_of` sets it for every recipe of the tests.
    del recipe["stages"][0]["training"]["save_steps"]
    return recipe


def checkpoints(recipe):
    return sorted(path.name for path in Path(recipe["output"]).rglob("checkpoint-*"))


def test_a_killed_run_of_few_steps_continues_from_its_last_minutes(bert_folder, text_folder, tmp_path):
    whole = recipe_of_few_steps(bert_folder, text_folder, tmp_path / "whole")
    killed = elsewhere(whole, tmp_path / "killed")
    with always_due():
        kill_at(killed, 9)
    assert checkpoints(killed) == ["checkpoint-3", "checkpoint-7"]
    limbeck.distill(whole)
    assert_ends_like(killed, whole)


def test_two_processes_save_at_the_step_of_the_main_process(bert_folder, text_folder, tmp_path):
    rows = {"per_device_train_batch_size": 4}
    whole = recipe_of_few_steps(bert_folder, text_folder, tmp_path / "whole", **rows)
    killed = elsewhere(whole, tmp_path / "killed")
    # A checkpoint is due in the main process alone. If the other one went by itself, nothing would be saved.
    distil(killed, codes=[-9, 1], disturbed=killed_at_sixth_step, rank=0)
    assert checkpoints(killed) == ["checkpoint-1", "checkpoint-3"]
    distil(killed, resume=True)
    distil(whole)
    assert_equal(student_of(killed), student_of(whole))
