"""`SeenKeys`: the keys of all documents so far, on disk, so that memory does not grow with the corpus."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_CACHE_KIBIBYTES = 4 * 1024
_OFFSET = 2**63  # SQLite's whole numbers are signed.


class SeenKeys:
    """A set of 64-bit keys in a file, which is removed at the end.

    A set in memory needs about 100 bytes a key: gigabytes where documents are lines. The file needs about 16 bytes a
    key, of which 4 MiB are in memory; a key costs some microseconds.

    Args:
        path: The file; an old one there is removed.
    """

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._path = path
        self._base = sqlite3.connect(path, isolation_level=None)
        # The file is of no use after a crash, so nothing is done to make it survive one.
        for pragma in ("journal_mode=off", "synchronous=off", f"cache_size=-{_CACHE_KIBIBYTES}"):
            self._base.execute(f"pragma {pragma}")
        self._base.execute("create table seen (key integer primary key)")

    def add(self, keys: Sequence[int]) -> list[bool]:
        """Add keys, uint64; return of each whether it is new."""
        # The whole batch in one statement; it answers with those that were not there.
        signed = json.dumps([int(key) - _OFFSET for key in keys])
        added = {
            key + _OFFSET
            for (key,) in self._base.execute(
                "insert or ignore into seen select value from json_each(?) returning key", (signed,)
            )
        }
        new = []
        for key in keys:
            new.append(int(key) in added)
            added.discard(int(key))  # A key that comes twice in the batch is new once.
        return new

    def fill(self, batches: Iterable[Sequence[int]]) -> None:
        """Add keys that are known to be new."""
        for keys in batches:
            self.add(keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._base.close()
        self._path.unlink(missing_ok=True)
