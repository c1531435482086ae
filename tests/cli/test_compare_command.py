"""`limbeck compare` as a user types it: tables, JSON, dry runs, restarts, exit codes."""

import json
from pathlib import Path

import pytest
import yaml

from limbeck.errors import TrainingError
from limbeck.training.stage import StageTraining
from tests.support.comparisons import mixed_plan, write_teacher
from tests.support.task_files import write_tasks


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return write_teacher(tmp_path_factory.mktemp("compare"))


@pytest.fixture
def plan(teacher, text_folder, tmp_path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(mixed_plan(teacher, text_folder)), encoding="utf-8")
    return path


def test_a_dry_run_lists_what_would_run(limbeck, plan, tmp_path):
    shown = limbeck.shown("compare", plan, "--dry-run", "--set", "seeds=[1, 2]")
    assert "tinybert, uniform on 2x32" in shown
    assert "100% stage 1: hidden_states: 1 x hidden_mse(hidden@2 <- hidden@3)" in shown
    assert "left out: few heads, tinybert, uniform, tinybert compares attention head by head" in shown
    assert "Combinations: 5; 1 left out. Seeds: 2. Runs: 10, of 1,000 tokens each." in shown
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]
    content = limbeck.json("compare", plan, "--dry-run")
    assert len(content["runs"]) == 5 and content["runs"][0]["seeds"] == [1]
    assert content["impossible"][0]["student"] == "few heads"


def test_from_a_plan_to_its_tables(limbeck, plan, tmp_path):
    output, data = tmp_path / "out", write_tasks(tmp_path / "tasks")
    changes = ("evaluation.tasks=[rte]", "evaluation.preset=quick", "methods.0.mappings=[single]",
               "evaluation.settings={length: 32, epochs: 1, batch_size: 8}")  # fmt: skip
    command = ["compare", plan, "--output", output, "--data", data, "--quiet"]
    command += [word for change in changes for word in ("--set", change)]
    done = limbeck(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "All students: RTE" in done.stdout and "Left out: tinybert" in done.stdout
    record = json.loads((output / "comparison.json").read_text())
    assert record["plan"]["evaluation"]["data"] == str(data)
    assert [cell["status"] for cell in record["cells"]] == ["finished"] * 3
    printed = limbeck.json(*command)
    assert printed["summary"] == record["summary"] and printed["failed"] == 0
    assert [Path(path).suffix for path in printed["files"]] == [".md", ".csv", ".json"]


def test_a_failing_run_ends_with_exit_code_1(limbeck, plan, tmp_path, monkeypatch):
    def failing(*arguments, **options):
        raise TrainingError("It [cannot] be.")

    monkeypatch.setattr(StageTraining, "run", failing)
    fewer = ("--set", "methods=[hidden_states]")
    done = limbeck("compare", plan, "--output", tmp_path / "out", *fewer, "--quiet")
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "2 runs failed (first hidden_states, " in said and "on 2x32, seed 1): It [cannot] be." in said
