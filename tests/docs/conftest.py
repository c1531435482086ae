"""Worlds that pages are run in: made once, copied for each page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

# The process that spreads the tests over others imports this file too, and needs no torch.


@pytest.fixture(scope="session")
def real_sizes(tmp_path_factory) -> Path:
    from tests.docs.world import checked_world

    return checked_world(tmp_path_factory.mktemp("checked"))


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    from tests.docs.world import small_world

    return small_world(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def small_with_a_comparison(small, tmp_path_factory) -> Path:
    """The small world with `runs/methods`, which takes its seconds."""
    from limbeck.api import compare
    from tests.support.comparisons import tiny_plan

    folder = tmp_path_factory.mktemp("compared") / "world"
    shutil.copytree(small, folder)
    plan = tiny_plan(folder / "google-bert/bert-base-uncased", folder / "texts")
    plan["students"] = [{"layers": 2, "hidden": 48, "heads": 12, "ffn": 96}]
    compare(plan, output=folder / "runs/methods")
    return folder


@pytest.fixture
def world(small, tmp_path, monkeypatch) -> Path:
    """A copy of the small world, as the current folder."""
    return _entered(small, tmp_path, monkeypatch)


@pytest.fixture
def whole_world(small_with_a_comparison, tmp_path, monkeypatch) -> Path:
    """A copy of the small world with a comparison, as the current folder."""
    return _entered(small_with_a_comparison, tmp_path, monkeypatch)


def _entered(world: Path, parent: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = parent / "world"
    shutil.copytree(world, folder)
    monkeypatch.chdir(folder)
    return folder
