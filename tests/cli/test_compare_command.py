"""`limbeck compare` as a user types it: tables, JSON, dry runs, restarts, one-line errors, exit codes."""

import json
from pathlib import Path

import pytest
import yaml

from limbeck.errors import TrainingError
from limbeck.training import run as training_run
from tests.support.commands import assert_one_line_error
from tests.support.comparisons import STUDENT, tiny_plan, write_teacher
from tests.support.corpora import write_text
from tests.support.task_files import write_tasks


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    return write_teacher(folder), write_text(folder / "text"), write_tasks(folder / "tasks")


@pytest.fixture
def plan(files, tmp_path) -> Path:
    teacher, text, _ = files
    methods = [{"name": "hidden_states", "mappings": ["last", "single"]}, "tinybert"]
    students = [STUDENT, {"name": "few heads", "shape": {**STUDENT, "heads": 2}}]
    content = tiny_plan(teacher, text, methods=methods, students=students, skip_impossible=True)
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def test_a_dry_run_lists_what_would_run(limbeck, plan, tmp_path):
    done = limbeck("compare", plan, "--dry-run", "--set", "seeds=[1, 2]")
    assert done.returncode == 0, done.stderr
    assert "tinybert, uniform on 2x32" in done.stdout
    assert "100% stage 1: hidden_states: 1 x hidden_mse(hidden@2 <- hidden@3)" in done.stdout
    assert "left out: few heads, tinybert, uniform, tinybert compares attention head by head" in done.stdout
    assert "Combinations: 5; 1 left out. Seeds: 2. Runs: 10, of 1,000 tokens each." in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]
    content = json.loads(limbeck("compare", plan, "--dry-run", "--json").stdout)
    assert len(content["runs"]) == 5 and content["runs"][0]["seeds"] == [1]
    assert content["impossible"][0]["student"] == "few heads"


def test_from_a_plan_to_its_tables(limbeck, plan, files, tmp_path):
    output = tmp_path / "out"
    settings = "{length: 32, epochs: 1, batch_size: 8}"
    command = ["compare", plan, "--output", output, "--data", files[2], "--set", "evaluation.tasks=[rte]", "--set",
               "evaluation.preset=quick", "--set", f"evaluation.settings={settings}", "--set",
               "methods.0.mappings=[single]", "--quiet"]  # fmt: skip
    done = limbeck(*command)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in (
        "All students: RTE",
        "2x32 (bert 2x32, 4 heads, FFN 48)",
        "hidden_states, single",
        "Left out: tinybert",
    ):
        assert part in done.stdout
    record = json.loads((output / "comparison.json").read_text())
    assert record["plan"]["evaluation"]["data"] == str(files[2])
    assert len(record["cells"]) == 3 and {cell["status"] for cell in record["cells"]} == {"finished"}
    printed = json.loads(limbeck(*command, "--json").stdout)
    assert printed["summary"] == record["summary"] and printed["failed"] == 0
    assert [Path(path).name for path in printed["files"]] == [
        f"comparison_table{end}" for end in (".md", ".csv", ".json")
    ]


def test_a_failing_run_ends_with_exit_code_1(limbeck, plan, tmp_path, monkeypatch):
    def failing(*arguments, **options):
        raise TrainingError("It [cannot] be.")

    monkeypatch.setattr(training_run, "run_stage", failing)
    fewer = ("--set", "methods=[hidden_states]")
    done = limbeck("compare", plan, "--output", tmp_path / "out", *fewer, "--quiet")
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "2 runs failed (first hidden_states, " in said and "on 2x32, seed 1): It [cannot] be." in said


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--set", "skip_impossible=false"], ["1 of 6 combinations cannot be", "few heads", "skip_impossible: true"]),
        (["--set", "budget.token=3"], ["unknown key 'token'", "Did you mean 'tokens'"]),
        (["--set", "methods.0.mapings=[last]"], ["methods.0", "Did you mean 'mappings'"]),
        (["--set", "teacher.model=./gone"], ["There is no model folder './gone'"]),
        (["--set", "evaluation.tasks=[rtee]"], ["Unknown task 'rtee'", "Did you mean 'rte'"]),
        (["--set", "evaluation.tasks=[rte]", "--data", "./gone"], ["'gone' does not exist"]),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_mistakes_give_one_line_and_exit_code_2(limbeck, plan, tmp_path, arguments, parts, dry):
    way = ["--dry-run"] if dry else ["--output", tmp_path / "out", "--quiet"]
    assert_one_line_error(limbeck("compare", plan, *way, *arguments), 2, *parts)
    assert not (tmp_path / "out").exists()


def test_a_folder_and_a_plan_are_needed(limbeck, plan, tmp_path):
    assert_one_line_error(limbeck("compare", plan), 2, "--output DIR", "--dry-run")
    assert_one_line_error(limbeck("compare", tmp_path / "none.yaml", "--dry-run"), 2, "does not exist")
