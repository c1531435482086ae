"""The JSON that identities are hashed from, with what differs between machines and versions replaced."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from limbeck.core import files

MODIFIED = 1_700_000_000
"""Seconds since 1970 that files are given, since identities of text hold when it was changed."""


@contextmanager
def recorded() -> Iterator[list[tuple[str, Any]]]:
    """List (hash, values) of every identity that is made."""
    made: list[tuple[str, Any]] = []

    def blake2b(content: bytes, *, digest_size: int) -> Any:
        found = hashlib.blake2b(content, digest_size=digest_size)
        made.append((found.hexdigest(), json.loads(content)))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "hashlib", SimpleNamespace(blake2b=blake2b))
        yield made


class Names:
    """Replaces what differs from machine to machine by names.

    Args:
        **known: For each name its text, longest first where one contains another.
    """

    def __init__(self, **known: object) -> None:
        self._known = {str(text): f"<{name}>" for name, text in known.items()}

    def plain(self, value: Any) -> Any:
        """Return a copy of plain values with the names put in."""
        if isinstance(value, dict):
            return {self.plain(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, str):
            for text, name in self._known.items():
                value = value.replace(text, name)
        return value

    def hashed(self, made: list[tuple[str, Any]]) -> list[Any]:
        """Return what each identity was made of, once each; where one is part of another, it is named by its place."""
        found: list[Any] = []
        for text, values in made:
            if text not in self._known:
                found.append(self.plain(values))
                self._known[text] = f"<identity {len(found)}>"
        return found


def fixed_times(folder: Path) -> Path:
    """Give all files of a folder the same time of change."""
    for path in sorted(folder.rglob("*")):
        os.utime(path, (MODIFIED, MODIFIED))
    return folder
