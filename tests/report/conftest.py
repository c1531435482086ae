"""Folders to report on: committed ones of every kind, and copies of them to be changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from limbeck.report.collect import collect
from limbeck.report.page import build_page, render_html
from tests.golden.committed import FOLDERS
from tests.support.page_document import Document

STAGES = ("minilmv2", "hidden_states")
"""Of the run `finished`."""


@pytest.fixture(scope="session")
def rendered():
    """The HTML of a page on folders, made once: committed ones by their names, others by their paths."""
    made: dict[tuple[str, ...], str] = {}

    def render(*names: str) -> str:
        if names not in made:
            made[names] = render_html(build_page(collect([FOLDERS[name] for name in names])))
        return made[names]

    return render


@pytest.fixture
def copied(tmp_path):
    """Copy a committed folder without its weights, to be changed."""

    def copy(kind: str = "finished", name: str = "copy") -> Path:
        return Path(shutil.copytree(FOLDERS[kind], tmp_path / name, ignore=shutil.ignore_patterns("*.safetensors")))

    return copy


@pytest.fixture
def change_record():
    """Change the record of a folder."""

    def change(path: Path, edit) -> None:
        record = json.loads(path.read_text(encoding="utf-8"))
        edit(record)
        path.write_text(json.dumps(record), encoding="utf-8")

    return change


@pytest.fixture
def page_of():
    """The page of folders, rendered on the way."""

    def build(*folders: Path):
        page = build_page(collect(folders))
        Document(render_html(page))
        return page

    return build
