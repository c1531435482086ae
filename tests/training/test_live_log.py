"""A stage's log while it is trained: every line as it is logged, with clock and tokens, through kills and resumes."""

import errno
import json
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

import limbeck
from limbeck.core.paths import LOG
from limbeck.core.run_status import status_of
from limbeck.training.callbacks import LiveLog
from limbeck.training.checkpoints import Checkpoints
from limbeck.training.heartbeat import Heartbeat
from limbeck.training.trainer import PROGRESS, DistillationTrainer
from tests.support.training import assert_ends_like, kill_at, log_of, reseal, stage_folder, without_clocks


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def logged(log, history, *, first=True):
    log.on_log(None, SimpleNamespace(is_world_process_zero=first, log_history=history), None)


def test_lines_come_one_by_one_and_replace_what_an_earlier_process_left(tmp_path):
    (tmp_path / LOG).write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "lo')
    log = LiveLog(tmp_path)
    logged(log, [{"step": 1}, {"step": 2}])
    assert lines_of(tmp_path / LOG) == [{"step": 1}, {"step": 2}]
    logged(log, [{"step": 1}, {"step": 2}, {"step": 3, "loss": 0.5}])
    assert lines_of(tmp_path / LOG)[2:] == [{"loss": 0.5, "step": 3}]


def test_one_process_of_several_writes(tmp_path):
    logged(LiveLog(tmp_path), [{"step": 1}], first=False)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_stops_no_run_and_what_it_left_is_written_anew(tmp_path, monkeypatch):
    log, history = LiveLog(tmp_path), [{"step": 1}]
    logged(log, history)
    original = Path.open

    def torn(self, mode="r", **options):
        file = original(self, mode, **options)
        if mode == "a":
            file.write('{"st')
            file.close()
            raise OSError(errno.ENOSPC, "No space left on device")
        return file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", torn)
        history.append({"step": 2})
        logged(log, history)
    history.append({"step": 3})
    logged(log, history)
    assert lines_of(tmp_path / LOG) == history


@pytest.mark.parametrize("timed", [True, False], ids=["timed", "of-old"])
def test_a_killed_run_has_its_log_and_goes_on_to_the_same_one(killed, whole, capsys, timed):
    folder = stage_folder(killed)
    assert [entry["step"] for entry in log_of(killed)] == [1, 2, 3, 4, 4]
    assert status_of(folder.parents[1]).checkpoint == 4
    with (folder / LOG).open("a") as file:
        file.write('{"step": 5, "lo')
    if not timed:
        strip_clocks(folder / "checkpoint-4")
    assert_ends_like(killed, whole)
    assert "skipped" not in capsys.readouterr().out
    mine = log_of(killed)
    assert without_clocks(mine) == without_clocks(log_of(whole))
    assert all("tokens" in entry for entry in mine)
    if timed:
        assert all(before["seconds"] <= after["seconds"] for before, after in pairwise(mine))
        assert all(before["tokens"] <= after["tokens"] for before, after in pairwise(mine))


def test_a_resumed_run_averages_the_last_steps_with_those_of_the_log_before(recipe, tmp_path):
    recipe["stages"][0]["training"]["logging_steps"] = 4
    uninterrupted = {**recipe, "output": str(tmp_path / "uninterrupted")}
    limbeck.distill(uninterrupted)
    kill_at(recipe, 5)
    assert_ends_like(recipe, uninterrupted)
    assert without_clocks(log_of(recipe)) == without_clocks(log_of(uninterrupted))


def test_the_time_of_a_stage_has_no_measurements_and_checkpoints(recipe, monkeypatch):
    """Held-out losses are measured at steps 4 and 6, and there are checkpoints of every second step."""
    ahead = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0])
    monkeypatch.setattr("limbeck.training.step_clock.time", clock)

    def takes_an_hour(owner, name):
        original = getattr(owner, name)

        def slow(*arguments, **options):
            ahead[0] += 3600
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, slow)

    takes_an_hour(DistillationTrainer, "evaluation_loop")
    takes_an_hour(Checkpoints, "write")
    (stage,) = limbeck.distill(recipe).run.stages
    assert ahead[0] == 5 * 3600
    assert 0 < stage.seconds < 3600
    # The record rounds the seconds to tenths, and this stage takes some tenths.
    slowest = stage.tokens / (stage.seconds + 0.05)
    fastest = stage.tokens / (stage.seconds - 0.05)
    assert slowest - 0.1 <= stage.tokens_per_second <= fastest + 0.1
    assert all(entry["seconds"] < 3600 for entry in log_of(recipe))


def strip_clocks(checkpoint):
    """Make a checkpoint as they were before there was a clock."""
    progress = json.loads((checkpoint / PROGRESS).read_text())
    del progress["seconds"]
    (checkpoint / PROGRESS).write_text(json.dumps(progress))
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    for entry in state["log_history"]:
        del entry["seconds"]
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    reseal(checkpoint)


def test_an_evaluation_is_no_step_of_the_sign_of_life(recipe, monkeypatch):
    """Its line has tokens too, but a rate since the step just before would be none."""
    beats = []
    monkeypatch.setattr(Heartbeat, "beat", lambda self, **fields: beats.append(fields))
    recipe["stages"][0]["training"]["max_steps"] = 4
    limbeck.distill(recipe)
    rates = [fields["tokens_per_second"] for fields in beats if "tokens_per_second" in fields]
    assert len(rates) == 3 and all(rate > 0 for rate in rates)
    assert all(fields["loss"] is not None for fields in beats if "loss" in fields)
