"""`limbeck report` of committed folders, word for word: as Markdown, and the text of its HTML."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

import limbeck
from tests.fixtures.write_shipped import CHANGED
from tests.golden.committed import FOLDERS
from tests.golden.page_text import page_lines
from tests.golden.snapshot import check
from tests.support.commands import call

KINDS = sorted(name for name in FOLDERS if not name.startswith("export"))
TOGETHER = {
    "two-runs": ("finished", "interrupted"),
    "all": ("finished", "comparison", "search-mapping", "evaluation-with-costs", "inspections"),
}


pytestmark = pytest.mark.usefixtures("no_pictures")


def report(tmp_path: Path, *kinds: str) -> tuple[str, str]:
    """Markdown and text of the HTML of a page on copies of folders."""
    for kind in kinds:
        shutil.copytree(FOLDERS[kind], tmp_path / kind)
        for journal in (tmp_path / kind).glob("search.journal"):
            os.utime(journal, ns=(CHANGED, CHANGED))
    page = tmp_path / "page.html"
    assert call("report", *(tmp_path / kind for kind in kinds), "--output", page, "--markdown") == 0
    texts = (page.with_suffix(".md").read_text(encoding="utf-8"), page_lines(page.read_text(encoding="utf-8")))
    markdown, html = (normalised(text, tmp_path) for text in texts)
    return markdown, html


def normalised(text: str, folder: Path) -> str:
    """A text without the place where its test ran, the version of limbeck, and the time that has passed."""
    for place in (str(folder), str(folder).replace("_", r"\_")):
        text = text.replace(place, "FOLDER")
    text = text.replace(limbeck.__version__, "VERSION")
    return re.sub(r"[\d.,]+ (s|min|h|d)(?= ago| before this page)", "TIME", text)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_folder(tmp_path, kind):
    markdown, html = report(tmp_path, kind)
    check(f"pages/{kind}.md", markdown)
    check(f"pages/{kind}.html.txt", html)


@pytest.mark.parametrize("name", TOGETHER)
def test_the_page_of_several(tmp_path, name):
    markdown, _ = report(tmp_path, *TOGETHER[name])
    check(f"pages/{name}.md", markdown)
