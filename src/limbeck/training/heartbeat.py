"""`Heartbeat`: a small file beside a run's record that shows that the run makes progress, and how far it is."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from limbeck.core import records
from limbeck.core.files import atomic_text
from limbeck.core.paths import HEARTBEAT
from limbeck.core.progress import Count, Report, Tick


class Heartbeat:
    """A run's sign of life: a small file beside `run.json`, written only when the run makes progress.

    The age of the file says how long ago the run last made progress. There is no thread that writes it, since it would
    write on while the training hangs. Whether the process lives is known by the lock of the folder.

    Args:
        folder: The run's folder; None writes nothing, since only one of several processes writes.
        seconds_between: Least time between two writes of the same activity.
    """

    def __init__(self, folder: Path | None, seconds_between: float = 5.0) -> None:
        self._folder = folder
        self._seconds_between = seconds_between
        self._written = -seconds_between
        self._fields: dict[str, Any] = {}

    def begin(self, activity: str, **fields: Any) -> None:
        """Begin another activity of the run.

        Args:
            activity: `corpus`, `models`, `measuring the rate`, `training` or `evaluation`.
            **fields: Further fields of the file.
        """
        self._fields = {"activity": activity, **fields}
        self._write()

    def beat(self, *, now: bool = False, **fields: Any) -> None:
        """Update the progress of the activity; the file is written only if the last write is long enough ago.

        Args:
            now: Write the file in any case.
            **fields: Fields that changed.
        """
        self._fields.update(fields)
        if now or time.monotonic() - self._written >= self._seconds_between:
            self._write()

    def with_beats(self, tick: Tick) -> Tick:
        """Return a function that writes a sign of life and calls another one."""

        def beat_and_tick(done: int, total: int, unit: str, /) -> None:
            self.beat()
            tick(done, total, unit)

        return beat_and_tick

    def report_with_beats(self, report: Report) -> Report:
        """Return a report that writes a sign of life, with the part and its share, and calls another one."""

        def beat_and_report(share: float, what: str, count: Count | None = None, /) -> None:
            # A part may take long until its next report, so that its name is written at once.
            is_new_part = what != self._fields.get("part")
            self.beat(now=is_new_part, part=what, share=share)
            report(share, what, count)

        return beat_and_report

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._folder is None:
            return
        text = records.text_of(records.plain({"time": records.timestamp(), **self._fields}))
        # A run does not fail because this file cannot be written; it only seems to have made no progress.
        with suppress(OSError):
            atomic_text(self._folder / HEARTBEAT, text, durable=False)
