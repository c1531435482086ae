"""Folders to report on: committed ones of every kind, and copies of them to be changed."""

from __future__ import annotations

import json
import shutil
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest

# The process that spreads the tests over others imports this file too, and needs no torch.
from tests.support.page_document import Document

RECORDS = ("comparison.json", "search.json", "run.json", "attention.json")


@pytest.fixture(scope="session")
def rendered():
    """The HTML of a page on committed folders, drawn once."""
    from limbeck.report.collect import collect
    from limbeck.report.page import build_page
    from limbeck.report.rendering import render_html
    from tests.golden.committed import FOLDERS

    pages: dict[tuple[str, ...], str] = {}

    def render(*names: str) -> str:
        if names not in pages:
            pages[names] = render_html(build_page(collect([FOLDERS[name] for name in names])))
        return pages[names]

    return render


@pytest.fixture
def change():
    """Change the record of a folder, by a function or by values at their paths; DELETED takes one out."""

    def edit_record(folder: Path, edit) -> Path:
        path = next(folder / name for name in RECORDS if (folder / name).is_file())
        record = json.loads(path.read_text(encoding="utf-8"))
        for place, value in {} if callable(edit) else edit.items():
            *above, last = (int(key) if key.isdigit() else key for key in place.split("."))
            holder = reduce(getitem, above, record)
            holder[last] = value
            if value == "DELETED":
                del holder[last]
        if callable(edit):
            edit(record)
        path.write_text(json.dumps(record), encoding="utf-8")
        return folder

    return edit_record


@pytest.fixture
def copied(tmp_path, change):
    """Copy a committed folder without its weights, its record changed or to be changed."""
    from tests.golden.committed import FOLDERS

    def copy(kind: str = "finished", name: str = "copy", edit=None) -> Path:
        folder = shutil.copytree(FOLDERS[kind], tmp_path / name, ignore=shutil.ignore_patterns("*.safetensors"))
        return folder if edit is None else change(folder, edit)

    return copy


@pytest.fixture
def page_of():
    """The page of folders; its HTML is read strictly on the way."""
    from limbeck.report.collect import collect
    from limbeck.report.page import build_page
    from limbeck.report.rendering import render_html

    def build(*folders: Path, render: bool = True):
        built = build_page(collect(folders))
        if render:
            Document(render_html(built))
        return built

    return build
