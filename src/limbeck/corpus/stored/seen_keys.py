"""`seen_keys`: the set of the keys of all texts that were read, on disk since it may be large."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

AddKeys: TypeAlias = Callable[[Sequence[int]], list[bool]]
"""Adds 64-bit keys to a set; returns for each whether it is new."""
_CACHE_KIBIBYTES = 4 * 1024
_KEY_OFFSET = 2**63  # SQLite's whole numbers are signed.


@contextmanager
def seen_keys(path: Path) -> Iterator[AddKeys]:
    """Yield the `AddKeys` of a new set of keys in a file, which is removed at the end.

    A set in memory needs about 100 bytes a key: gigabytes where documents are lines. The file needs about 16 bytes a
    key, of which 4 MiB are in memory; a key costs some microseconds.

    Args:
        path: The file; an old one there is removed.
    """
    path.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as base:
            # The file is of no use after a crash, so nothing is done to make it survive one.
            for pragma in ("journal_mode=off", "synchronous=off", f"cache_size=-{_CACHE_KIBIBYTES}"):
                base.execute(f"pragma {pragma}")
            base.execute("create table seen (key integer primary key)")
            yield partial(_add_keys, base)
    finally:
        path.unlink(missing_ok=True)


def _add_keys(base: sqlite3.Connection, keys: Sequence[int]) -> list[bool]:
    """Add keys to the table of a database; see `AddKeys`."""
    # One statement adds the whole batch, and returns the keys that were not there. SQLite's integers are signed.
    signed_keys = json.dumps([key - _KEY_OFFSET for key in keys])
    rows = base.execute("insert or ignore into seen select value from json_each(?) returning key", (signed_keys,))
    added_keys = {key + _KEY_OFFSET for (key,) in rows}
    are_new = []
    for key in keys:
        are_new.append(key in added_keys)
        added_keys.discard(key)  # A key that comes twice in the batch is new once.
    return are_new
