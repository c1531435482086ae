"""Comparisons that stop, fail or change: what is kept, what goes on, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

import limbeck
from limbeck.errors import Interrupted, OutputError, TrainingError
from limbeck.evaluation import grid as attempt
from limbeck.training import run as training_run
from tests.support.corpora import write_text


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_keeps_what_is_finished_and_the_next_call_goes_on(plan, tmp_path, trained, at_step):
    whole = limbeck.compare(plan, output=tmp_path / "whole").record
    del trained[:]
    output, (undo, _) = tmp_path / "out", at_step(2, press_ctrl_c)
    with pytest.raises(Interrupted, match="1 of 2 runs are done .* the same command goes on"):
        limbeck.compare(plan, output=output)
    stopped = json.loads((output / "comparison.json").read_text())
    assert stopped["status"] == "interrupted"
    first, second = stopped["cells"]
    assert (first["status"], second["status"]) == ("finished", "interrupted")
    assert list((output / second["folder"]).rglob("checkpoint-*"))
    undo()
    record = limbeck.compare(plan, output=output).record
    assert len(trained) == 3, "the first run is not trained again"
    assert_same_figures(record, whole)


def test_a_killed_comparison_goes_on_from_its_checkpoint(plan, tmp_path, at_step):
    plan["training"] |= {"save_strategy": "steps", "save_steps": 2}
    whole = limbeck.compare(plan, output=tmp_path / "whole").record
    output, (undo, _) = tmp_path / "out", at_step(2, sys.exit)
    with pytest.raises(SystemExit):
        limbeck.compare(plan, output=output)
    killed = json.loads((output / "comparison.json").read_text())
    assert killed["status"] == "running"
    [checkpoint] = (output / "runs").rglob("checkpoint-*")
    assert checkpoint.name == "checkpoint-2"
    undo()
    _, steps = at_step(1, lambda: None)
    record = limbeck.compare(plan, output=output).record
    assert steps[0] == 3, "it goes on after its checkpoint"
    assert_same_figures(record, whole)


def assert_same_figures(record, whole):
    for cell, expected in zip(record["cells"], whole["cells"], strict=True):
        assert cell["held_out"] == expected["held_out"], "the resumed run ends where an unbroken one does"
        assert (cell["steps"], cell["tokens"]) == (expected["steps"], expected["tokens"])


def test_runs_that_fail_are_said_and_tried_again(plan, tmp_path, monkeypatch, trained):
    output = tmp_path / "out"
    original = training_run.run_stage
    faults = {"hidden_states": TrainingError("The term 'x' became\nnan."), "minilmv2": ZeroDivisionError("by zero")}

    def failing(choice, *arguments, **options):
        if (fault := faults.get(choice.spec.method["name"])) is not None:
            raise fault
        return original(choice, *arguments, **options)

    monkeypatch.setattr(training_run, "run_stage", failing)
    result = limbeck.compare(plan, output=output)
    assert (result.failed, result.record["status"], result.record["summary"]["main"]) == (2, "failed", None)
    problems = ["The term 'x' became nan.", "ZeroDivisionError: by zero"]
    assert [(cell["status"], cell["problem"]) for cell in result.record["cells"]] == [
        ("failed", problem) for problem in problems
    ]
    assert "1 run failed (first hidden_states, last on 2x32, seed 1)" in result.files[0].read_text()
    del faults["minilmv2"]
    result = limbeck.compare(plan, output=output)
    assert (result.failed, [cell["status"] for cell in result.record["cells"]]) == (1, ["failed", "finished"])
    faults.clear()
    assert limbeck.compare(plan, output=output).failed == 0
    assert len(trained) == 2


def test_a_changed_plan_keeps_what_is_unchanged(plan, tmp_path, trained):
    output = tmp_path / "out"
    limbeck.compare(plan, output=output)
    assert len(trained) == 2
    other = {"name": "hidden_states", "title": "renamed", "mappings": ["last", "single"]}
    wider = {"name": "minilmv2", "options": {"relation_heads": 4}}
    result = limbeck.compare(plan | {"name": "more", "methods": [other, wider], "seeds": [1]}, output=output)
    assert len(trained) == 4, "'last' is as it was; 'single' and other relation heads are new"
    assert [(cell["method"], cell["mapping"]) for cell in result.record["cells"]] == [
        ("renamed", "last"), ("renamed", "single"), ("minilmv2", "layer auto")
    ]  # fmt: skip
    limbeck.compare(plan, output=output)
    assert len(trained) == 4, "and what was left out is still there"


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("budget.tokens=2000", ["budget", "tokens = 1000", "tokens = 2000"]),
        ("corpus.length=20", ["corpus", "length = 24", "length = 20"]),
        ("training.learning_rate=0.1", ["training arguments", "learning_rate = 0.001", "learning_rate = 0.1"]),
        ("teacher.dtype=bfloat16", ["teacher", 'dtype = "auto"', 'dtype = "bfloat16"']),
    ],
)
def test_a_changed_teacher_corpus_or_budget_is_refused(plan, tmp_path, trained, override, parts):
    output = tmp_path / "out"
    limbeck.compare(plan | {"methods": ["minilmv2"]}, output=output)
    before = (output / "comparison.json").read_bytes()
    with pytest.raises(OutputError) as caught:
        limbeck.compare(plan, [override], output=output)
    for part in (*parts, "put it back, or give another --output"):
        assert part in str(caught.value)
    assert (output / "comparison.json").read_bytes() == before
    assert len(trained) == 1


def test_other_text_in_the_same_files_is_refused(plan, tmp_path):
    text = write_text(tmp_path / "text", 20)
    plan |= {"methods": ["minilmv2"], "corpus": {**plan["corpus"], "sources": [str(text)]}}
    limbeck.compare(plan, output=tmp_path / "out")
    (text / "0.txt").write_text("Another document. It has two sentences.")
    with pytest.raises(OutputError, match="The text of the corpus of the comparison"):
        limbeck.compare(plan, output=tmp_path / "out")


def test_a_folder_of_something_else_is_left_alone(plan, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds no comparison"):
        limbeck.compare(plan, output=tmp_path)
    with pytest.raises(OutputError, match="is a file"):
        limbeck.compare(plan, output=tmp_path / "notes.txt")
    (tmp_path / "comparison.json").write_text("{")
    with pytest.raises(OutputError, match="cannot be read"):
        limbeck.compare(plan, output=tmp_path)


def test_ctrl_c_while_evaluating_and_a_fine_tuning_that_fails(plan, tasks, tmp_path, monkeypatch, trained):
    plan["evaluation"] |= {
        "tasks": "rte", "preset": "quick", "data": str(tasks), "teacher": False,
        "settings": {"length": 32, "epochs": 1, "batch_size": 8},
    }  # fmt: skip
    output = tmp_path / "out"

    def train_once(cells, report):
        if "minilmv2" in cells[0].cell.model:
            raise stop
        return original(cells, report)

    original, stop = attempt.train_once, KeyboardInterrupt()
    monkeypatch.setattr(attempt, "train_once", train_once)
    with pytest.raises(Interrupted, match="1 of 2 cells are done"):
        limbeck.compare(plan, output=output)
    assert json.loads((output / "comparison.json").read_text())["status"] == "interrupted"
    stop = TrainingError("no head")
    result = limbeck.compare(plan, output=output)
    assert result.failed == 1 and len(trained) == 2, "nothing is distilled again"
    first, second = result.record["summary"]["blocks"][0]["rows"]
    assert (first["rank"], second["rank"]) == (1, None)
    assert first["retention"] == {}, "the teacher is not evaluated"
    assert "no head" in result.files[0].read_text()
