"""`limbeck status`: runs that run, died, finished, were stopped or failed, told apart by what they leave."""

import json
import multiprocessing
import os
import socket
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from limbeck.api import distill
from limbeck.core.folder_lock import folder_lock
from limbeck.core.paths import COMPARISON_RECORD, HEARTBEAT, LOCK, RUN_RECORD, SEARCH_RECORD
from limbeck.core.run_status import SILENT_AFTER, find_runs, status_of
from limbeck.errors import OutputError
from limbeck.report.statuses import run_statuses
from limbeck.training.callbacks import ProgressReporter
from limbeck.training.heartbeat import Heartbeat
from limbeck.training.trainer import DistillationTrainer

NOW = datetime(2030, 5, 1, 12, 0, 0, tzinfo=UTC)
TRAINING = {
    "activity": "training",
    "stage": "minilmv2",
    "stage_number": 1,
    "stages": 2,
    "step": 1200,
    "steps": 40000,
    "tokens_per_second": 51234.5,
    "loss": 0.25,
    "checkpoint": 1000,
    "seconds_left": 7322.0,
}


def write_run(folder, status, seconds_ago=3.0, **fields):
    folder.mkdir(parents=True)
    at = (NOW - timedelta(seconds=seconds_ago)).isoformat()
    (folder / RUN_RECORD).write_text(json.dumps({"name": folder.name, "status": status, "updated": at} | fields))
    (folder / HEARTBEAT).write_text(json.dumps({"time": at, **TRAINING}))
    (folder / LOCK).write_text(json.dumps({"host": "node7", "pid": 4242, "started": 1.0, "since": at}))
    return folder


@pytest.mark.parametrize(
    ("said", "locked", "status", "well"),
    [
        ("running", True, "running", True),
        ("running", False, "dead", False),
        ("finished", False, "finished", True),
        ("interrupted", False, "interrupted", True),
        ("failed", False, "failed", False),
        (None, False, "dead", False),
        (7, False, "dead", False),
    ],
)
def test_what_a_run_says_and_whether_its_process_lives(tmp_path, said, locked, status, well):
    folder = write_run(tmp_path / "run", said)
    with folder_lock(folder) if locked else nullcontext():
        found = status_of(folder, NOW)
    assert (found.status, not found.needs_attention) == (status, well)
    assert (found.host, found.pid) == ((socket.gethostname(), os.getpid()) if locked else ("node7", 4242))
    assert (found.stage, found.step, found.steps, found.checkpoint) == ("minilmv2 (1 of 2)", 1200, 40000, 1000)
    assert (found.seconds_since, found.tokens_per_second) == (3.0, 51234.5)
    assert found.seconds_left == (7322.0 if locked else None)


def test_a_living_run_without_progress_for_long_is_silent_whatever_it_does(tmp_path):
    folder = write_run(tmp_path / "run", "running", seconds_ago=SILENT_AFTER + 1)
    with folder_lock(folder):
        assert status_of(folder, NOW).silent and status_of(folder, NOW).needs_attention
        assert not status_of(folder, NOW - timedelta(seconds=2)).silent
        beat = json.loads((folder / HEARTBEAT).read_text())
        for activity in ("corpus", "models", "evaluation"):
            (folder / HEARTBEAT).write_text(json.dumps({**beat, "activity": activity}))
            assert status_of(folder, NOW).silent, activity
            assert not status_of(folder, NOW - timedelta(seconds=2)).silent, activity
    assert not status_of(folder, NOW).silent, "a dead run is dead"


def test_where_locks_are_not_to_be_had_the_process_is_asked_for(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", "running")
    monkeypatch.setattr("limbeck.core.run_status.is_locked", lambda folder: None)
    assert status_of(folder, NOW).status == "running", "of another host the record is believed"
    (folder / LOCK).write_text(json.dumps({"host": socket.gethostname(), "pid": 1, "started": 5.0}))
    assert status_of(folder, NOW).status == "dead", "the number is another process's now"


def test_runs_are_found_at_any_depth_and_not_inside_of_runs(tmp_path):
    for name in ("b/two", "a", "b/one", "a/stages/inner"):
        write_run(tmp_path / name, "finished")
    assert find_runs([tmp_path]) == [tmp_path / "a", tmp_path / "b" / "one", tmp_path / "b" / "two"]
    assert find_runs([tmp_path / "a", tmp_path / "a"]) == [tmp_path / "a"]
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere", tmp_path / "a" / RUN_RECORD):
        with pytest.raises(OutputError, match=str(folder)):
            find_runs([tmp_path / "a", folder])


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00", '{"time": 5, "step": "x", "activity": []}', "[" * 99_999])
def test_damaged_files_are_no_obstacle(tmp_path, content):
    folder = write_run(tmp_path / "run", "running")
    (folder / HEARTBEAT).write_text(content)
    found = status_of(folder, NOW)
    assert (found.status, found.step, found.seconds_since) == ("dead", None, 3.0)
    (folder / RUN_RECORD).write_text(content)
    (folder / LOCK).write_text(content)
    assert (status_of(folder, NOW).status, status_of(folder, NOW).pid) == ("dead", None)


@pytest.mark.parametrize("several", [False, True], ids=["lines", "table"])
def test_whatever_is_in_a_run_is_shown_as_it_is_and_damage_in_one_line(tmp_path, limbeck, monkeypatch, several):
    monkeypatch.setenv("COLUMNS", "250")
    write_run(tmp_path / "[bold]run", "running", problem="it\x1b[31m broke")
    if several:
        write_run(tmp_path / "whole", "finished")
    done = limbeck("status", tmp_path)
    assert done.returncode == 1
    assert "[bold]run" in done.stdout and "\x1b" not in done.stdout
    (tmp_path / "[bold]run" / RUN_RECORD).write_text('{"name": "to')
    done = limbeck("status", tmp_path)
    assert done.returncode == 1
    assert done.stdout.count(f"'{tmp_path / '[bold]run' / RUN_RECORD}' is damaged and cannot be read") == 1


@pytest.mark.parametrize(("name", "shown"), [("run", "{}"), ("int", "{}"), ("mine", "mine ({})")])
def test_a_run_has_a_name_beside_its_folder_if_it_was_given_one(tmp_path, limbeck, name, shown):
    folder = write_run(tmp_path / "int", "finished", name=name)
    assert limbeck("status", folder).stdout.splitlines()[0] == f"run: {shown.format(folder)}"


def test_the_checkpoint_of_a_run_is_shown_where_its_heartbeat_names_none(tmp_path, limbeck):
    folder = write_run(tmp_path / "run", "interrupted")
    heartbeat = {**TRAINING, "time": NOW.isoformat(), "activity": "evaluation", "checkpoint": None}
    (folder / HEARTBEAT).write_text(json.dumps(heartbeat))
    assert "checkpoint: –" in limbeck.shown("status", folder)
    for step in (9, 46):
        (folder / "stages" / "1-vectors" / f"checkpoint-{step}").mkdir(parents=True)
    assert "checkpoint: step 46" in limbeck.shown("status", folder)


def test_a_finished_run_has_the_checkpoints_that_it_has_kept(tmp_path, limbeck):
    folder = write_run(tmp_path / "run", "finished")
    assert json.loads((folder / HEARTBEAT).read_text())["checkpoint"] == 1000
    assert "checkpoint: –" in limbeck.shown("status", folder)
    (folder / "stages" / "1-vectors" / "checkpoint-1000").mkdir(parents=True)
    assert "checkpoint: step 1,000" in limbeck.shown("status", folder)


def test_a_dead_run_is_shown_with_the_commands_that_continue_or_end_it(tmp_path, limbeck):
    folder = write_run(tmp_path / "my run", "running")
    done = limbeck("status", folder)
    assert done.returncode == 1
    assert (
        f"The run was killed. Continue with: limbeck distill --resume --output '{folder}'; or keep the student as it "
        f"is, with: limbeck finish '{folder}'"
    ) in done.stdout
    # A record that is damaged is told instead.
    (folder / RUN_RECORD).write_text('{"name": "to')
    assert "Continue with" not in limbeck("status", folder).stdout


def test_a_dead_run_that_has_saved_a_teacher_assistant_alone_cannot_be_ended(tmp_path, limbeck):
    folder = write_run(tmp_path / "run", "running")
    record = json.loads((folder / RUN_RECORD).read_text())
    record["recipe"] = {"stages": [{"name": "assistant", "student": {"shape": "2x32"}}, {"name": "own"}]}
    (folder / RUN_RECORD).write_text(json.dumps(record))
    (folder / "stages" / "1-assistant" / "checkpoint-1000").mkdir(parents=True)
    shown = limbeck("status", folder).stdout
    assert "Continue with: limbeck distill --resume" in shown and "limbeck finish" not in shown
    (folder / "stages" / "2-own" / "checkpoint-10").mkdir(parents=True)
    assert "limbeck finish" in limbeck("status", folder).stdout


def test_a_dead_run_without_a_checkpoint_is_said_to_begin_again(tmp_path, limbeck):
    folder = write_run(tmp_path / "run", "running")
    (folder / HEARTBEAT).write_text(json.dumps({**TRAINING, "time": NOW.isoformat(), "checkpoint": None}))
    begins_again = "No checkpoint was saved before, so it begins again with: limbeck distill --resume --output"
    assert begins_again in limbeck("status", folder).stdout
    # A run that was killed after its training has no checkpoint any more, and loses nothing.
    stage = folder / "stages" / "1-vectors"
    stage.mkdir(parents=True)
    (stage / "stage.json").write_text("{}")
    assert "The run was killed. Continue with: " in limbeck("status", folder).stdout


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (COMPARISON_RECORD, "It belongs to the comparison in '{}': run the same `limbeck compare` command again"),
        (SEARCH_RECORD, "It belongs to the search in '{}': run the same `limbeck search` command again"),
    ],
)
def test_a_dead_run_of_a_comparison_or_search_continues_by_their_command(tmp_path, limbeck, record, line):
    work = tmp_path / "my work"
    folder = write_run(work / "runs" / "a", "running")
    (work / record).write_text("{}")
    done = limbeck("status", folder)
    assert line.format(work) in done.stdout
    assert "limbeck distill" not in done.stdout


EVALUATION = {"activity": "evaluation", "part": "agreement, vectors of the student", "share": 0.4716}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, "evaluation: agreement, vectors of the student (47 %)"),
        # Not all is done yet.
        ({"share": 0.9999}, "evaluation: agreement, vectors of the student (99 %)"),
        ({"part": "figures by language", "share": 0.0}, "evaluation: figures by language"),
        ({"share": "x"}, "evaluation: agreement, vectors of the student"),
        # Earlier versions wrote no part.
        ({"part": None, "share": None}, "evaluation"),
    ],
)
def test_the_part_of_the_comparison_is_shown_with_its_share(tmp_path, limbeck, changes, place):
    folder = write_run(tmp_path / "run", "running")
    (folder / HEARTBEAT).write_text(json.dumps({"time": NOW.isoformat(), **EVALUATION, **changes}))
    with folder_lock(folder):
        assert f"\nstage: {place}\n" in limbeck.shown("status", folder)
        (row,) = run_statuses([status_of(folder, NOW)]).rows
    assert row[2] == place


def test_json_has_the_part_and_its_share(tmp_path, limbeck):
    folder = write_run(tmp_path / "run", "interrupted")
    (folder / HEARTBEAT).write_text(json.dumps({"time": NOW.isoformat(), **EVALUATION}))
    (run,) = limbeck.json("status", folder)
    assert {name: run[name] for name in EVALUATION} == EVALUATION


def test_the_heartbeat_has_the_part_at_once_and_its_share_now_and_then(tmp_path, monkeypatch):
    clock, writes = SimpleNamespace(now=100.0), []
    record = "limbeck.training.heartbeat"
    monkeypatch.setattr(f"{record}.time.monotonic", lambda: clock.now)
    monkeypatch.setattr(f"{record}.atomic_text", lambda path, text, durable: writes.append(json.loads(text)))
    heartbeat = Heartbeat(tmp_path, seconds_between=5.0)
    heartbeat.begin("evaluation")
    reported = []
    report = heartbeat.report_with_beats(lambda share, what, count=None: reported.append((share, what)))
    steps = [(0.0, "a"), (0.4, "a"), (0.8, "a"), (0.0, "b"), (0.5, "b")]
    for share, part in steps:
        clock.now += 3.0
        report(share, part)
    assert reported == steps
    parts = [(write.get("share"), write.get("part")) for write in writes]
    assert parts == [(None, None), (0.0, "a"), (0.8, "a"), (0.0, "b")]
    heartbeat.begin("training")
    assert "part" not in writes[-1]


def test_json_has_everything(tmp_path, limbeck):
    write_run(tmp_path / "a", "finished")
    assert [run["problem"] for run in limbeck.json("status", tmp_path)] == [None]
    write_run(tmp_path / "b", "failed", problem="No space left on device")
    done = limbeck("status", tmp_path, "--json")
    assert done.returncode == 1
    first, second = json.loads(done.stdout)
    assert (first["status"], first["well"], first["folder"]) == ("finished", True, str(tmp_path / "a"))
    assert (second["problem"], second["step"], second["steps"]) == ("No space left on device", 1200, 40000)


def test_a_stop_is_no_problem(tmp_path):
    stop = "Stopped at step 2 of stage 'a'; the state is saved."
    found = status_of(write_run(tmp_path / "stopped", "interrupted", problem=stop), NOW)
    assert (found.stop, found.problem) == (stop, None)
    found = status_of(write_run(tmp_path / "failed", "failed", problem="No space left on device"), NOW)
    assert (found.stop, found.problem) == (None, "No space left on device")


def test_a_run_whose_later_stages_were_skipped_is_shown_as_ended_early(tmp_path):
    folder = write_run(tmp_path / "run", "finished", ended_early={"stage": "a", "skipped": ["b"]})
    assert status_of(folder, NOW).shown == "finished, ended early after stage 'a'"


def distil_and_hang(recipe, hanging):
    original = DistillationTrainer.training_step

    def step(self, *arguments, **named):
        if self.state.global_step == 3:
            hanging.set()
            time.sleep(600)
        return original(self, *arguments, **named)

    DistillationTrainer.training_step = step
    distill(recipe)


def test_a_real_run_lives_dies_goes_on_and_finishes(tiny_recipe):
    output = Path(tiny_recipe["output"])
    context = multiprocessing.get_context("fork")
    hanging = context.Event()
    process = context.Process(target=distil_and_hang, args=(tiny_recipe, hanging))
    process.start()
    assert hanging.wait(timeout=120)
    found = status_of(output)
    assert (found.status, found.pid, found.checkpoint) == ("running", process.pid, 2)
    assert (found.stage, found.steps) == ("minilmv2 (1 of 1)", 4)
    assert found.seconds_since < 120
    late = datetime.now(UTC) + timedelta(seconds=SILENT_AFTER + 1)
    assert status_of(output, late).silent, "its process lives, but its loop hangs"
    process.kill()
    process.join()
    assert status_of(output).status == "dead"
    distill(tiny_recipe, resume=True)
    found = status_of(output)
    assert (found.status, found.problem, found.needs_attention) == ("finished", None, False)


@pytest.mark.parametrize("main", [True, False], ids=["main", "another rank"])
def test_the_heartbeat_is_written_now_and_then_and_never_by_another_rank(tmp_path, monkeypatch, main):
    clock, writes = SimpleNamespace(now=100.0), []
    record = "limbeck.training.heartbeat"
    monkeypatch.setattr(f"{record}.time.monotonic", lambda: clock.now)
    monkeypatch.setattr(f"{record}.atomic_text", lambda path, text, durable: writes.append(json.loads(text)))
    heartbeat = Heartbeat(tmp_path, seconds_between=5.0)
    reporter = ProgressReporter("s", Console(quiet=True), heartbeat, stage_number=2, stages=3)
    state = SimpleNamespace(is_world_process_zero=main, max_steps=100, global_step=10)
    reporter.on_train_begin(SimpleNamespace(torch_compile=False), state, None)
    reporter.on_log(None, state, None, logs={"loss": 3.0, "tokens": 1000.0, "seconds": 7.0})
    for state.global_step in range(11, 51):
        clock.now += 0.5
        reporter.on_step_end(None, state, None)
    reporter.on_log(None, state, None, logs={"loss": 2.0, "tokens": 3000.0, "seconds": 27.0})
    reporter.on_log(None, state, None, logs={"eval_loss": 2.0})
    reporter.on_save(None, state, None)
    if not main:
        assert writes == []
        return
    first, *others, last = writes
    assert (first["stage_number"], first["checkpoint"]) == (2, 10)
    assert [(write["step"], write["seconds_left"]) for write in others] == [
        (20, 40.0),
        (30, 35.0),
        (40, 30.0),
        (50, 25.0),
    ]
    assert (last["checkpoint"], last["loss"], last["tokens_per_second"]) == (50, 2.0, 100.0)


def test_work_between_steps_is_a_sign_of_life(tmp_path, monkeypatch):
    clock, writes = SimpleNamespace(now=100.0), []
    record = "limbeck.training.heartbeat"
    monkeypatch.setattr(f"{record}.time.monotonic", lambda: clock.now)
    monkeypatch.setattr(f"{record}.atomic_text", lambda path, text, durable: writes.append(json.loads(text)))
    reporter = ProgressReporter("s", Console(quiet=True), Heartbeat(tmp_path, seconds_between=5.0))
    for in_training in (False, True):
        if in_training:
            state = SimpleNamespace(is_world_process_zero=True, max_steps=100, global_step=0)
            reporter.on_train_begin(SimpleNamespace(torch_compile=False), state, None)
        before = len(writes)
        with reporter.activity("held-out loss") as tick:
            for batch in range(1, 5):
                clock.now += 3.0
                tick(batch, 4, "batches")
        # One at the start, and one every five seconds.
        assert len(writes) == before + 3
    reporter.close()
