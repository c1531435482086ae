"""The run record: `run.json`, written at every turn of a run, whole or not at all."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from limbeck.core.files import RECORD, read_record, write_atomically
from limbeck.core.machine import git_commit, hardware, peak_device_memory_bytes, peak_memory_bytes, versions


class RunRecord:
    """The record of one run.

    Args:
        folder: The run's folder; an earlier record there is continued.
        fields: First fields, such as name and recipe.
        writes: Whether this process writes it; of several one does.
    """

    def __init__(self, folder: Path, fields: dict[str, Any], *, writes: bool = True) -> None:
        self._path = folder / RECORD
        self._writes = writes
        self._started = time.monotonic()
        earlier = read_record(folder)
        # A damaged record must not end the run that is told in it.
        if not isinstance(earlier.get("peak_memory_bytes", 0), int):
            del earlier["peak_memory_bytes"]
        timings = earlier.get("timings")
        earlier["timings"] = {
            what: float(seconds)
            for what, seconds in (timings.items() if isinstance(timings, dict) else ())
            if isinstance(seconds, int | float) and math.isfinite(seconds)
        }
        self.fields: dict[str, Any] = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "timings": {},
            "stages": [],
            **{key: value for key, value in earlier.items() if key != "problem"},
            **fields,
            "versions": versions(),
            "git_commit": git_commit(),
            "hardware": hardware(),
        }
        self._seconds_before = earlier["timings"].get("total", 0.0)
        # Stages are told again in full by a resumed run, from what each left in its folder.
        self.fields["stages"] = []

    def set(self, status: str, **fields: Any) -> None:
        """Add fields and write the record.

        Args:
            status: `running`, `finished`, `interrupted` or `failed`.
            **fields: What is new.
        """
        self.fields.update(fields)
        self.fields["status"] = status
        self.fields["updated"] = datetime.now(UTC).isoformat(timespec="seconds")
        self.fields["peak_memory_bytes"] = max(peak_memory_bytes(), self.fields.get("peak_memory_bytes", 0))
        self.fields["peak_device_memory_bytes"] = peak_device_memory_bytes()
        self.fields["timings"]["total"] = round(self._seconds_before + time.monotonic() - self._started, 1)
        if not self._writes:
            return
        write_atomically(self._path, json.dumps(self.fields, indent=2, default=str) + "\n")

    def time(self, what: str, seconds: float) -> None:
        """Note how long a part took; parts repeated by a resumed run add up."""
        timings = self.fields["timings"]
        timings[what] = round(timings.get(what, 0.0) + seconds, 1)


__all__ = ["RECORD", "RunRecord", "read_record", "write_atomically"]
