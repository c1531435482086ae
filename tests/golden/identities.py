"""The JSON that identities are hashed from, with what differs between machines and versions replaced."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import limbeck
from limbeck.core.files import fingerprint

MODIFIED = 1_700_000_000
"""Seconds since 1970 that files are given, since identities of text hold when it was changed."""


@contextmanager
def recorded() -> Iterator[list[tuple[str, Any]]]:
    """List (hash, values) of every identity that is made, in whichever module."""
    _import_all()
    made: list[tuple[str, Any]] = []

    def record(values: Any) -> str:
        found = fingerprint(values)
        made.append((found, json.loads(json.dumps(values))))
        return found

    homes = [
        (module, name)
        for title, module in list(sys.modules.items())
        if title.partition(".")[0] == "limbeck"
        for name, value in list(vars(module).items())
        if value is fingerprint
    ]
    assert homes
    for module, name in homes:
        setattr(module, name, record)
    try:
        yield made
    finally:
        for module, name in homes:
            setattr(module, name, fingerprint)


@cache
def _import_all() -> None:
    """Import every module: one that is imported later would keep the recording for good."""
    for module in pkgutil.walk_packages(limbeck.__path__, "limbeck."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


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
