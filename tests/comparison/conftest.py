"""Files of tiny comparisons, and a look at what is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

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
