"""Files of tiny comparisons, and a look at what is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import TrainerCallback

from limbeck.training import stage as training_stage
from tests.support.comparisons import tiny_plan, write_teacher
from tests.support.corpora import write_text
from tests.support.task_files import write_tasks


@pytest.fixture(scope="package")
def teacher(tmp_path_factory) -> Path:
    return write_teacher(tmp_path_factory.mktemp("compared"))


@pytest.fixture(scope="package")
def text(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("compared-text"))


@pytest.fixture(scope="package")
def tasks(tmp_path_factory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("compared-tasks"))


@pytest.fixture
def plan(teacher, text):
    return tiny_plan(teacher, text)


@pytest.fixture
def trained(monkeypatch):
    """The titles of the stages that are really trained, in order."""
    done = []
    original = training_stage.DistillationTrainer.train

    def train(self, *arguments, **keywords):
        done.append(self.args.output_dir.split("/runs/")[-1])
        return original(self, *arguments, **keywords)

    monkeypatch.setattr(training_stage.DistillationTrainer, "train", train)
    return done


@pytest.fixture
def at_step(monkeypatch):
    """Let something happen at the end of the third step of the n-th trainer of the test.

    Returns what undoes it, and the steps that this trainer has made.
    """

    class Act(TrainerCallback):
        def __init__(self, action, steps):
            self.action, self.steps = action, steps

        def on_step_end(self, args, state, control, **keywords):
            self.steps.append(state.global_step)
            if state.global_step == 3:
                self.action()

    def install(number, action):
        made, steps = [], []
        original = training_stage.DistillationTrainer.__init__

        def initialise(self, model, **arguments):
            original(self, model, **arguments)
            made.append(self)
            if len(made) == number:
                self.add_callback(Act(action, steps))

        monkeypatch.setattr(training_stage.DistillationTrainer, "__init__", initialise)
        return lambda: monkeypatch.setattr(training_stage.DistillationTrainer, "__init__", original), steps

    return install
