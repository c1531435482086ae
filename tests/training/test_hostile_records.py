"""The files of a run, damaged: its status is shown, its checkpoints are skipped, and nothing waits for them."""

from __future__ import annotations

import json
import os
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from limbeck.core.files import read_json
from limbeck.core.run_status import find_runs, status_of
from limbeck.errors import OutputError
from limbeck.training.record import RunRecord

STRANGE: list[Any] = [
    None, True, 3, 1e308, 10**30, "", [], {}, [1], {"a": 1}, float("nan"), float("inf"), "\x1b[2J\n", "[/]"
]  # fmt: skip


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_any_value_in_the_files_of_a_run_is_shown(tmp_path: Path, value: Any) -> None:
    for key in ("status", "name", "problem", "updated"):
        (tmp_path / "run.json").write_text(json.dumps({"status": "running", key: value}))
        found = status_of(tmp_path)
        assert found.status == "dead"
        assert isinstance(found.problem, str | None)
    names = ("time", "activity", "stage", "step", "steps", "tokens_per_second", "checkpoint", "seconds_left", "loss")
    for key in (*names, "part", "share"):
        (tmp_path / "heartbeat.json").write_text(json.dumps({"activity": "training", key: value}))
        found = status_of(tmp_path)
        assert isinstance(found.activity, str | None)
        assert isinstance(found.place, str | None)
        assert isinstance(found.step, int | None)
        assert isinstance(found.tokens_per_second, float | None)
    for key in ("host", "pid", "started", "since"):
        (tmp_path / ".run.lock").write_text(json.dumps({key: value}))
        assert isinstance(status_of(tmp_path).host, str | None)


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_a_run_goes_on_whatever_its_record_says(tmp_path: Path, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limbeck.training.record.time.monotonic", partial(next, count()))
    for key in ("timings", "peak_memory_bytes", "stages", "created"):
        (tmp_path / "run.json").write_text(json.dumps({"status": "running", key: value}))
        record = RunRecord(tmp_path, {"name": "x"})
        for seconds in (1.0, 2.0):
            with record.timed("reading"):
                pass
            record.set("running")
            assert read_json(tmp_path / "run.json")["timings"]["reading"] == seconds


def test_files_without_end_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    assert read_json(tmp_path / "pipe.json") == read_json(tmp_path / "device.json") == {}


def test_folders_that_no_file_system_has() -> None:
    for name in ("x" * 5000, "a\0b"):
        with pytest.raises(OutputError, match="is not a folder"):
            find_runs([Path(name)])
