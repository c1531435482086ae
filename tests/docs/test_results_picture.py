"""The picture of the first page shows the rows of the committed files, and says so to those who cannot see it."""

import re

import pytest

from tests.docs.pages import ROOT, Page, script


@pytest.fixture(scope="module")
def picture():
    return script("docs/pictures/results.py")


def test_the_text_and_the_file_are_of_todays_rows(picture):
    texts = {target: text for text, target in Page("docs/index.md").picture_texts}
    assert texts["pictures/results.svg"] == picture.description()
    saved = (ROOT / "docs/pictures/results.svg").read_text(encoding="utf-8")
    described = re.search(r"<dc:description>(.*?)</dc:description>", saved, re.DOTALL)[1]
    assert " ".join(described.split()) == picture.description(), "run: python docs/pictures/results.py"


def test_every_figure_is_drawn(picture):
    left, right = picture.draw().axes
    assert [round(bar.get_width()) for bar in left.patches] == [round(100 * share) for share in picture.kept().values()]
    assert [bar.get_width() for bar in right.patches] == [1.0, *picture.step_times().values()]
    assert all(ratio > 1 for ratio in picture.step_times().values())
