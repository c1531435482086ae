"""`results.jsonl`: a row per cell, on disk before the next cell begins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeAlias

from limbeck.errors import OutputError

Row: TypeAlias = dict[str, Any]
RESULTS = "results.jsonl"
FINISHED, FAILED = "finished", "failed"


class ResultsFile:
    """The rows of all cells that ever ran in a folder.

    Args:
        folder: Of the evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS

    def read(self) -> list[Row]:
        """Return the rows, in order; a line that was not written to its end is passed over.

        Raises:
            OutputError: if the file cannot be read.
        """
        if not self._path.exists():
            return []
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise OutputError(f"'{self._path}' cannot be read: {error.strerror}.") from None
        rows = (_parse(line) for line in lines)
        return [row for row in rows if row is not None]

    def finished(self) -> dict[str, Row]:
        """Return the finished cells by their identity."""
        return {row["id"]: row for row in self.read() if row.get("status") == FINISHED}

    def append(self, row: Row) -> None:
        """Write a row and wait until it is on disk.

        Raises:
            OutputError: if it cannot be written.
        """
        line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
        try:
            with self._path.open("ab") as file:
                # A line that an earlier process left unfinished must not swallow this one.
                torn = file.tell() > 0 and not self._ends_with_newline()
                file.write((b"\n" if torn else b"") + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(f"'{self._path}' cannot be written: {error.strerror}.") from None

    def _ends_with_newline(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _parse(line: bytes) -> Row | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("id"), str) else None
