"""`limbeck report` of committed folders, word for word: as Markdown, and the text of its HTML."""

from __future__ import annotations

import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

import limbeck
from tests.fixtures.write_shipped import CHANGED
from tests.golden.committed import FOLDERS
from tests.golden.snapshot import check
from tests.support.commands import call

KINDS = sorted(name for name in FOLDERS if not name.startswith("export"))
TOGETHER = {
    "two-runs": ("finished", "interrupted"),
    "all": ("finished", "comparison", "search-mapping", "evaluation-with-costs", "inspections"),
}


pytestmark = pytest.mark.usefixtures("no_pictures")


_BLOCKS = {
    "h1", "h2", "h3", "h4", "p", "li", "caption", "figcaption", "summary", "dt", "dd", "pre", "tr", "legend", "label",
    "b", "title", "section", "table", "figure", "details", "nav", "footer", "main", "ul", "ol", "dl",
}  # fmt: skip
_SILENT = {"style", "script", "svg"}


class _Lines(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.inside: list[str] = []
        self.text: list[str] = []
        self.silent = 0
        self.feed(html)
        self.close()
        self.end_line()

    def handle_starttag(self, tag, attrs):
        if tag in _SILENT:
            self.silent += 1
        elif tag in ("th", "td"):
            self.text.append("| ")
        elif tag in _BLOCKS:
            self.end_line()
            self.inside.append(tag)
            if tag in ("section", "table", "figure", "nav", "footer"):
                self.lines.append(f"<{tag}>")

    def handle_endtag(self, tag):
        if tag in _SILENT:
            self.silent -= 1
        elif tag in ("th", "td"):
            self.text.append(" ")
        elif tag in _BLOCKS:
            self.end_line()
            self.inside.pop()

    def handle_data(self, data):
        if not self.silent and self.inside:
            self.text.append(data)

    def end_line(self):
        text = "".join(self.text)
        if text.strip():
            tag = self.inside[-1]
            text = text.strip("\n") if tag == "pre" else " ".join(text.split())
            self.lines += [f"{tag}: {line}" for line in text.splitlines()]
        self.text = []


def page_lines(html: str) -> str:
    """Return the text of a page, a block a line after its element's name; the cells of a row stand in one line."""
    return "\n".join(_Lines(html).lines) + "\n"


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
