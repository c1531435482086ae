"""`Heartbeat`: a small file beside a run's record that shows that the run gets on, and how far it is."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from limbeck.core import records
from limbeck.core.files import atomic_text
from limbeck.core.paths import HEARTBEAT


class Heartbeat:
    """A run's sign of life: a small file beside `run.json`, written as the run gets on and by nothing else.

    The age of the file tells how long ago the run last got somewhere. A thread of its own would write on while the
    loop hangs, so there is none. Whether the process lives is told by the lock of the folder.

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
            activity: `corpus`, `models`, `training` or `evaluation`.
            **fields: Further fields of the file.
        """
        self._fields = {"activity": activity, **fields}
        self._write()

    def beat(self, *, now: bool = False, **fields: Any) -> None:
        """Update the progress of the activity; written only if the last time is long enough ago.

        Args:
            now: Write in any case.
            **fields: Fields that changed.
        """
        self._fields.update(fields)
        if now or time.monotonic() - self._written >= self._seconds_between:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._folder is None:
            return
        text = records.text_of(records.plain({"time": records.timestamp(), **self._fields}))
        # No run fails for want of a sign of life; it only looks older.
        with suppress(OSError):
            atomic_text(self._folder / HEARTBEAT, text, durable=False)
