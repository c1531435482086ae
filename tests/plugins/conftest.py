"""Plugins for tests: files and distributions that add methods, and registries that forget them afterwards."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from limbeck.core import registry as plugins
from limbeck.methods import METHODS
from limbeck.objectives import OBJECTIVES


@pytest.fixture(autouse=True)
def _forgotten_afterwards(monkeypatch):
    """Whatever a test adds is gone after it."""
    monkeypatch.setenv(plugins.VARIABLE, "")  # So that what a test leaves there goes with it.
    monkeypatch.delenv(plugins.VARIABLE)
    monkeypatch.setattr(plugins, "_files", {})
    monkeypatch.setattr(plugins, "_distributions", {})
    for registry in (METHODS, OBJECTIVES):
        len(registry)
        monkeypatch.setattr(registry, "_items", dict(registry._items))
        monkeypatch.setattr(registry, "_outside", set(registry._outside))


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
