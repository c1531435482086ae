"""A few kills of every kind of job by `benchmarks/chaos_kills.py`, and that it would notice what it looks for."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kills import training_jobs
from benchmarks.kills.attempt import Death
from benchmarks.kills.events import Event
from benchmarks.kills.job import Job, changed, identity_of, without_clocks
from benchmarks.kills.rounds import Case, Found, Reference, differences, run_round

KINDS = ("corpus", "training", "evaluation", "search", "teaching")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    output = tmp_path_factory.mktemp("chaos") / "result.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
        chaos_kills = importlib.import_module("chaos_kills")
        code = chaos_kills.main(["--short", "--kills", str(len(KINDS)), "--seed", "5", "--output", str(output)])
    result = json.loads(output.read_text())
    result["exit_code"] = code
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_or_differs_when_jobs_are_killed(result: dict[str, Any], kind: str) -> None:
    found = result["kinds"][kind]
    assert found["kills"] == 1
    assert found["rounds"] > 0, "and came to an end in spite of it"
    assert found["problems"] == []
    assert (found["results_lost"], found["differing_final_states"], found["processes_left"]) == (0, 0, 0)
    assert found["failures"] == 0


def test_a_script_without_problems_exits_with_zero(result: dict[str, Any]) -> None:
    assert result["exit_code"] == int(result["problems"] > 0)


def test_kills_are_told_with_time_and_place(result: dict[str, Any]) -> None:
    assert [row["kind"] for row in result["rows"]] == list(KINDS)
    assert all(row["after_seconds"] > 0 and row["where"] for row in result["rows"])
    recoveries = [row["recovery_seconds"] for row in result["rows"] if row["recovery_seconds"] is not None]
    assert recoveries
    assert min(recoveries) > 0


def append(inputs: Path, folder: Path) -> None:
    """A job that goes on with a list of numbers, a file for each."""
    folder.mkdir(exist_ok=True)
    for number in range(20):
        if not (folder / str(number)).exists():
            (folder / str(number)).write_text(str(number))


def forget(inputs: Path, folder: Path) -> None:
    """One that begins again each time."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    append(inputs, folder)


def go_astray(inputs: Path, folder: Path) -> None:
    """One that ends otherwise when it has been stopped."""
    stopped = folder.exists()
    append(inputs, folder)
    (folder / "19").write_text("stopped" if stopped else "19")


def give_up(inputs: Path, folder: Path) -> None:
    """One that does not go on."""
    folder.mkdir()
    append(inputs, folder)


def leave_a_child(inputs: Path, folder: Path) -> None:
    """One that leaves a process behind."""
    if os.fork() == 0:
        signal.pause()
    append(inputs, folder)


def kept(folder: Path) -> dict[str, Any]:
    return {path.name: identity_of(path) for path in folder.glob("*") if path.stat().st_size}


def contents(folder: Path) -> dict[str, Any]:
    return {path.name: path.read_text() for path in folder.glob("*")}


def kill_once(run: Any, work: Path, monkeypatch: pytest.MonkeyPatch) -> Found:
    """A round of a job that dies at its tenth operation."""
    job = Job("toy", "toy", Path.mkdir, run, kept, contents, frozenset({"end"}))
    monkeypatch.setattr("benchmarks.kills.rounds._draw", lambda *_: Death(operation=10))
    monkeypatch.setattr("benchmarks.kills.attempt.STRAY_SECONDS", 0.2)
    (work / "inputs").mkdir()
    expected = {str(number): str(number) for number in range(20)}
    found = Found()
    case = Case(job, work, Reference(1.0, 0.1, 20, expected), random.Random(0))
    run_round(case, number=0, most=1, found=found, tell=lambda kill: None)
    return found


@pytest.mark.parametrize(
    ("run", "faults"),
    [
        (append, {}),
        (forget, {"lost": 7}),
        (go_astray, {"differences": ["toy, round 0: 19: 'stopped', not '19'"]}),
        (give_up, {"failures": "FileExistsError"}),
        (leave_a_child, {"strays": 2}),
    ],
)
def test_faults_of_a_job_are_found(
    run: Any, faults: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kill_once(run, tmp_path, monkeypatch)
    seen = {"lost": len(found.lost), "differences": found.differences, "strays": found.strays}
    assert {name: fault for name, fault in seen.items() if fault} == {n: f for n, f in faults.items() if n in seen}
    assert faults.get("failures", "") in "".join(found.failures) and bool(found.failures) is ("failures" in faults)
    [kill] = found.kills
    assert (kill["way"], kill["killed"], found.endings) == ("file operation", "process", int("failures" not in faults))
    if run is append:
        assert (kill["kept"], kill["operation"]) == (8, "open 8")


def step(stage: str, number: int) -> Event:
    return Event(0.0, "step", f"{stage}:{number}")


@pytest.mark.parametrize(
    ("events", "after", "lost"),
    [
        ([step("1-a", 5)], {"checkpoint of 1-a": 8}, []),
        ([], {"checkpoint of 1-a": 4}, []),
        ([step("1-a", 5), step("2-b", 1)], {"1-a": [1, 2, 3]}, []),
        ([step("1-a", 3)], {"checkpoint of 1-a": 8}, ["checkpoint of 1-a, step 4"]),
        ([], {"checkpoint of 1-a": 2}, ["checkpoint of 1-a, step 4"]),
        ([], {}, ["checkpoint of 1-a, step 4"]),
    ],
)
def test_a_checkpoint_is_lost_where_it_is_not_gone_on_from(
    events: list[Event], after: dict[str, Any], lost: list[str]
) -> None:
    assert training_jobs.lost({"checkpoint of 1-a": 4}, events, after) == lost


def test_a_finished_stage_is_lost_where_it_is_trained_again() -> None:
    before = {"1-a": [1, 2, 3]}
    assert training_jobs.lost(before, [step("2-b", 1)], before) == []
    assert training_jobs.lost(before, [step("1-a", 1)], before) == ["1-a"]
    assert training_jobs.lost(before, [], {"1-a": [1, 9, 3]}) == changed(before, [], {}) == ["1-a"]


def test_differences_are_named_at_any_depth() -> None:
    whole = {"a": [1, {"b": 2.0, "seconds": 3}], "c": None, "train_runtime": 1}
    assert without_clocks(whole) == {"a": [1, {"b": 2.0}], "c": None}
    assert differences(whole, {**whole, "a": [1, {"b": 2.5, "seconds": 3}]}) == ["a.1.b: 2.5, not 2.0"]
    assert differences({"a": [1]}, {"a": [1, 2], "d": 3}) == ["a: [1, 2], not [1]", "d: 3, not None"]
    assert differences(replace(Death(), operation=1), Death(operation=1)) == []
