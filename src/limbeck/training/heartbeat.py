"""`Heartbeat`: a run's sign of life, a small file beside its record."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from limbeck.core import records
from limbeck.core.files import atomic_text
from limbeck.core.paths import HEARTBEAT


class Heartbeat:
    """A run's sign of life: a small file beside `run.json`, written as the run gets on and by nothing else.

    No thread writes it, which would go on when the loop hangs: its age says how long ago the run last got somewhere,
    and the folder's lock whether the process lives.

    Args:
        folder: The run's folder; None writes nothing: of several processes one does.
        seconds_between: Least time between two writes of the same activity.
    """

    def __init__(self, folder: Path | None, seconds_between: float = 5.0) -> None:
        self._folder = folder
        self._seconds_between = seconds_between
        self._written = -seconds_between
        self._fields: dict[str, Any] = {}

    def begin(self, activity: str, **fields: Any) -> None:
        """Say what the run is at from now on.

        Args:
            activity: `corpus`, `models`, `training` or `evaluation`.
            **fields: More of it.
        """
        self._fields = {"activity": activity, **fields}
        self._write()

    def beat(self, *, now: bool = False, **fields: Any) -> None:
        """Say how far it is; written if the last time is long enough ago.

        Args:
            now: Write in any case.
            **fields: What is new.
        """
        self._fields.update(fields)
        if now or time.monotonic() - self._written >= self._seconds_between:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._folder is None:
            return
        text = records.text_of(records.plain({"time": records.timestamp(), **self._fields}))
        with suppress(OSError):  # No run fails for want of a sign of life; it only looks older.
            atomic_text(self._folder / HEARTBEAT, text, durable=False)
