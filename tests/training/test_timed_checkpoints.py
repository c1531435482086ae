"""Checkpoints by time: at which steps they are saved, and that a killed run of few steps continues from one."""

import signal
from contextlib import contextmanager
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


def steps_saved(monkeypatch, *, steps, seconds_a_step, first_step=0, first_seconds=None):
    """The steps at which a checkpoint is asked for, of a training whose clock moves by these times."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(timed_checkpoints.time, "monotonic", lambda: clock.now)
    callback = TimedCheckpoints()
    callback.on_train_begin(None, TrainerState(global_step=first_step), TrainerControl())
    saved = []
    for step in range(first_step + 1, steps + 1):
        is_first = step == first_step + 1
        clock.now += first_seconds if is_first and first_seconds is not None else seconds_a_step
        control = TrainerControl()
        callback.on_step_end(None, TrainerState(global_step=step), control)
        if control.should_save:
            saved.append(step)
            callback.on_save(None, TrainerState(global_step=step), control)
    return saved


@pytest.mark.parametrize(
    ("options", "saved"),
    [
        ({"steps": 149, "seconds_a_step": 4.0}, [75]),
        # A run that continues counts from its checkpoint.
        ({"steps": 149, "seconds_a_step": 4.0, "first_step": 10}, [85]),
        # Kernels are compiled in the first step, which is none of the pace.
        ({"steps": 149, "seconds_a_step": 4.0, "first_seconds": 60.0}, [61, 136]),
        ({"steps": 2000, "seconds_a_step": 0.1}, []),
        # Steps beyond all measure.
        ({"steps": 9, "seconds_a_step": 400.0}, [4, 8]),
    ],
)
def test_a_checkpoint_is_saved_about_every_five_minutes(monkeypatch, options, saved):
    assert steps_saved(monkeypatch, **options) == saved


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


@contextmanager
def always_due():
    """Save as soon as the pace is known: at every fourth step."""
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
    assert checkpoints(killed) == ["checkpoint-4", "checkpoint-8"]
    limbeck.distill(whole)
    assert_ends_like(killed, whole)


def test_two_processes_save_at_the_step_of_the_main_process(bert_folder, text_folder, tmp_path):
    rows = {"per_device_train_batch_size": 4}
    whole = recipe_of_few_steps(bert_folder, text_folder, tmp_path / "whole", **rows)
    killed = elsewhere(whole, tmp_path / "killed")
    # A checkpoint is due in the main process alone. If the other one went by itself, nothing would be saved.
    distil(killed, codes=[-9, 1], disturbed=killed_at_sixth_step, rank=0)
    assert checkpoints(killed) == ["checkpoint-4"]
    distil(killed, resume=True)
    distil(whole)
    assert_equal(student_of(killed), student_of(whole))
