"""Plugins for tests: files and distributions that add methods, and registries that forget them afterwards."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from limbeck.methods import METHODS
from limbeck.objectives import OBJECTIVES
from tests.support.plugins import forgotten_afterwards  # noqa: F401 - a fixture of every test here


@pytest.fixture
def write_plugin(tmp_path):
    """Write a plugin file and return its path."""

    def write(text: str, name: str = "mine.py") -> Path:
        path = tmp_path / name
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Lay a distribution on the path as an installer does: a module, and metadata with entry points."""

    def lay(name: str, code: str, entry_points: str, version: str = "1.2") -> Path:
        folder = tmp_path / "site"
        metadata = folder / f"{name}-{version}.dist-info"
        metadata.mkdir(parents=True)
        (folder / f"{name}.py").write_text(dedent(code), encoding="utf-8")
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (metadata / "entry_points.txt").write_text(dedent(entry_points))
        monkeypatch.syspath_prepend(str(folder))
        for registry in (METHODS, OBJECTIVES):
            monkeypatch.setattr(registry, "_is_discovered", False)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return folder

    return lay
