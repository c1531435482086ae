"""Comparisons that stop, fail or change: what is kept, what goes on, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys

import pytest

import limbeck
from limbeck.core.blocks import Table
from limbeck.errors import Interrupted, OutputError, TrainingError
from limbeck.evaluation.evaluators import fine_tuned as attempt
from limbeck.report.collect import collect
from limbeck.report.comparison import methods_markdown
from limbeck.report.page import build_page
from limbeck.training.stage import StageTraining
from tests.support.comparisons import tiny_plan
from tests.support.corpora import write_text
from tests.support.streams import make_texts, write_texts
from tests.support.training import at_step, failing_after


@pytest.fixture(scope="module")
def whole(teacher, text, tmp_path_factory):
    """The record of a comparison that nothing stops, and its plan."""
    plan = tiny_plan(teacher, text)
    plan["training"] |= {"save_strategy": "steps", "save_steps": 2}
    return limbeck.compare(plan, output=tmp_path_factory.mktemp("whole") / "out").record, plan


@pytest.mark.parametrize("stop", ["ctrl-c", "kill"])
def test_a_stopped_comparison_keeps_what_is_finished_and_goes_on_from_its_checkpoint(whole, tmp_path, trained, stop):
    (expected, plan), output = whole, tmp_path / "out"
    end = {"ctrl-c": lambda model: os.kill(os.getpid(), signal.SIGINT), "kill": lambda model: sys.exit()}[stop]
    with at_step(3, failing_after(1, lambda model: None, end)), pytest.raises((Interrupted, SystemExit)) as caught:
        limbeck.compare(plan, output=output)
    stopped = json.loads((output / "comparison.json").read_text())
    if stop == "ctrl-c":
        assert re.search("1 of 2 runs are done .* the same command continues", str(caught.value))
        assert [cell["status"] for cell in stopped["cells"]] == ["finished", "interrupted"]
    assert stopped["status"] == {"ctrl-c": "interrupted", "kill": "running"}[stop]
    assert list((output / "runs").rglob("checkpoint-*"))
    begun = []
    with at_step(1, begun.append):
        record = limbeck.compare(plan, output=output).record
    assert len(trained) == 3, "the first run is not trained again"
    assert not begun, "the second goes on after its checkpoint"
    for cell, unbroken in zip(record["cells"], expected["cells"], strict=True):
        for fact in ("held_out", "steps", "tokens"):
            assert cell[fact] == unbroken[fact], "the resumed run ends where an unbroken one does"


def test_a_run_that_was_ended_early_is_told_apart_from_whole_ones(whole, tmp_path):
    _, plan = whole
    output = tmp_path / "out"
    # The second run is stopped after a checkpoint.
    stop = failing_after(1, lambda model: None, lambda model: os.kill(os.getpid(), signal.SIGINT))
    with at_step(3, stop), pytest.raises(Interrupted):
        limbeck.compare(plan, output=output)
    stopped = json.loads((output / "comparison.json").read_text())["cells"][1]
    limbeck.finish(output / stopped["folder"])

    record = limbeck.compare(plan, output=output).record
    first, second = record["cells"]
    assert first["ended_early"] is None
    step, planned_steps = second["ended_early"]["step"], second["ended_early"]["planned_steps"]
    assert step < planned_steps
    page = build_page(collect([output]))
    [runs] = [block for part in page.parts for section in part.sections for block in section.blocks
              if isinstance(block, Table) and block.caption == "Runs"]  # fmt: skip
    statuses = [row[runs.headings.index("Status")] for row in runs.rows]
    assert statuses[0] == "finished"
    assert statuses[1].startswith(f"finished, ended early at step {step} of {planned_steps} of stage ")
    sentence = f"{second['title']}: The run was ended early, at step {step} of stage "
    assert any(line.startswith(sentence) for line in page.warnings())
    assert sentence in methods_markdown(record)


def test_runs_that_fail_are_said_and_tried_again(plan, tmp_path, monkeypatch, trained):
    output = tmp_path / "out"
    original = StageTraining.run
    faults = {"hidden_states": TrainingError("The term 'x' became\nnan."), "minilmv2": ZeroDivisionError("by zero")}

    def failing(self):
        if (fault := faults.get(self.plan.spec.method["name"])) is not None:
            raise fault
        return original(self)

    monkeypatch.setattr(StageTraining, "run", failing)
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


def test_a_changed_teacher_corpus_budget_or_text_is_refused(plan, tmp_path, trained):
    output, text = tmp_path / "out", write_text(tmp_path / "text", 20)
    plan |= {"methods": ["minilmv2"], "corpus": {**plan["corpus"], "sources": [str(text)]}}
    limbeck.compare(plan, output=output)
    before = (output / "comparison.json").read_bytes()
    for override, parts in {
        "budget.tokens=2000": ("budget", "tokens = 1000", "tokens = 2000"),
        "corpus.length=20": ("corpus", "length = 24", "length = 20"),
        "training.learning_rate=0.1": ("training arguments", "learning_rate = 0.001", "learning_rate = 0.1"),
        "teacher.dtype=bfloat16": ("teacher", 'dtype = "auto"', 'dtype = "bfloat16"'),
    }.items():
        with pytest.raises(OutputError) as caught:
            limbeck.compare(plan, [override], output=output)
        assert all(part in str(caught.value) for part in (*parts, "change it back, or give another output"))
    (text / "0.txt").write_text("Another document. It has two sentences.")
    with pytest.raises(OutputError, match="The text of the corpus of the comparison"):
        limbeck.compare(plan, output=output)
    assert (output / "comparison.json").read_bytes() == before
    assert len(trained) == 1


def test_a_folder_of_something_else_is_left_alone(plan, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds no comparison"):
        limbeck.compare(plan, output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


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
    with pytest.raises(Interrupted, match="1 of 2 measurements are done"):
        limbeck.compare(plan, output=output)
    assert json.loads((output / "comparison.json").read_text())["status"] == "interrupted"
    stop = TrainingError("no head")
    result = limbeck.compare(plan, output=output)
    assert result.failed == 1 and len(trained) == 2, "nothing is distilled again"
    first, second = result.record["summary"]["blocks"][0]["rows"]
    assert (first["rank"], second["rank"]) == (None, None), "one seed"
    assert first["retention"] == {}, "the teacher is not evaluated"
    assert "no head" in result.files[0].read_text()


def test_a_moved_comparison_goes_on_and_keeps_its_runs(teacher, trained, tmp_path, monkeypatch):
    places = [tmp_path / "first", tmp_path / "moved"]
    shutil.copytree(teacher, places[0] / "teacher")
    for name in ("a", "b"):
        write_texts(places[0] / "text" / f"{name}.txt", make_texts(name, 60))
    plans = [tiny_plan(place / "teacher", "", methods=["minilmv2"]) for place in places]
    for place, plan in zip(places, plans, strict=True):
        plan["corpus"] |= {"sources": [], "mix": {"by": f"{place}/text/{{name}}.txt", "exponent": 0.3}}
    limbeck.compare(plans[0], output=places[0] / "out")
    shutil.copytree(*places, copy_function=shutil.copy)
    shutil.rmtree(places[0])
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "other"))
    before = {path.name for path in (places[1] / "out/runs").iterdir()}
    found = limbeck.compare({**plans[1], "seeds": [1, 2]}, output=places[1] / "out")
    assert (found.failed, len(trained)) == (0, 2), "the finished run is kept, and one is added"
    assert before < {path.name for path in (places[1] / "out/runs").iterdir()}
    file = next(path for path in (places[1] / "text").rglob("*") if path.is_file())
    file.write_text(file.read_text() + "\n\nOne more document.")
    with pytest.raises(OutputError, match="The text of the corpus of the comparison"):
        limbeck.compare(plans[1], output=places[1] / "out")
