"""`RunRecord`: the record of a run, `run.json`, written whenever a part of the run has a result."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from limbeck.core import files, records
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.core.memory import peak_device_memory_bytes, peak_memory_bytes


class RunRecord:
    """The record of one run, continued where an earlier process left one.

    Args:
        folder: The run's folder.
        fields: Fields of `records.Run` that are known at the beginning, such as name and recipe.
        writes: Whether this process writes it; one of several does.

    Attributes:
        run: The record.
    """

    def __init__(self, folder: Path, fields: dict[str, Any], *, writes: bool = True) -> None:
        self._folder = folder
        self._writes = writes
        self._started = time.monotonic()
        # The parts of the run that this process has begun.
        self._begun: set[str] = set()
        # The files that an earlier process left; None where there is no such file.
        self._earlier: dict[type[records.File], records.File | None] = {}
        for kind in (records.Run, records.Heartbeat):
            is_there = (folder / kind.FILE).is_file()
            self._earlier[kind] = records.load(kind, folder) if is_there else None
        # Later values replace earlier ones: defaults, then the record that an earlier process left (whose damaged
        # fields are left out), then the facts of this process. The problem that ended the earlier process is dropped.
        values: dict[str, Any] = {"created": records.timestamp(), "timings": {}, "stages": []}
        values |= records.load(records.Run, folder).to_dict()
        values.pop("problem", None)
        values |= fields
        values |= {"versions": versions(), "git_commit": git_commit(), "hardware": hardware()}
        self.run = records.Run.read(values)
        self._seconds_before = self.run.timings.get("total", 0.0)
        # A resumed run describes all stages again, from the record that each left in its folder.
        self.run.stages = []

    def set(self, status: str, **fields: Any) -> None:
        """Add fields and write the record.

        Args:
            status: `running`, `finished`, `interrupted` or `failed`.
            **fields: New values of fields of `records.Run`.
        """
        run = self.run
        for name, value in fields.items():
            setattr(run, name, value)
        run.status = status
        run.updated = records.timestamp()
        run.peak_memory_bytes = max(peak_memory_bytes(), run.peak_memory_bytes or 0)
        run.peak_device_memory_bytes = peak_device_memory_bytes()
        run.timings["total"] = round(self._seconds_before + time.monotonic() - self._started, 1)
        if self._writes:
            records.save(run, self._folder)

    @property
    def has_trained(self) -> bool:
        """Whether this process has begun to train, or to measure a student: one of 0 steps has no training."""
        return bool({"training", "evaluation"} & self._begun)

    def withdraw(self) -> None:
        """Put back the record and the heartbeat that an earlier process left; remove them where it left none."""
        if not self._writes:
            return
        for kind, earlier in self._earlier.items():
            if earlier is None:
                files.remove(self._folder / kind.FILE)
            else:
                records.save(earlier, self._folder)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of the block to a part of the run; the times of the processes of a resumed run add up.

        Args:
            part: Its name, such as `corpus` or `training`.
        """
        started = time.monotonic()
        self._begun.add(part)
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self.run.timings[part] = round(self.run.timings.get(part, 0.0) + seconds, 1)
