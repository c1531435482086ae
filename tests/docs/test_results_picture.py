"""The picture of the first page shows the rows of the committed files, in both themes and in words."""

import json
import re

import pytest

from limbeck.report.plots import THEMES, show
from tests.docs.pages import ROOT, Page, script

RESULTS = ROOT / "benchmarks" / "results"
SAVED = ROOT / "docs" / "pictures" / "results.svg"


@pytest.fixture(scope="module")
def picture():
    return script("docs/pictures/results.py")


@pytest.mark.parametrize(("page", "target"), [("README.md", "docs/pictures/results.svg"),
                                              ("docs/index.md", "pictures/results.svg")])  # fmt: skip
def test_the_text_says_the_points(picture, page, target):
    assert {file: text for text, file in Page(page).picture_texts}[target] == picture.figure().description


def test_the_file_is_of_todays_rows(picture):
    saved = SAVED.read_text(encoding="utf-8")
    words = re.compile("<(title|desc|text)[^>]*>([^<]+)<")
    assert words.findall(saved) == words.findall(picture.svg()), "run: python docs/pictures/results.py"
    for theme in THEMES.values():
        assert f"--ink:{theme['ink']}" in saved


def test_points_are_rows_of_the_files(picture):
    models = json.loads((RESULTS / "evaluation.json").read_text(encoding="utf-8"))["summary"]["models"]
    assert len(picture.points()) == len(models) == 4
    saved = SAVED.read_text(encoding="utf-8")
    for model in models:
        assert f", {show(model['columns']['sick_cosine']['metrics']['spearman']['mean'])}</title>" in saved
    rows = json.loads((RESULTS / "model.json").read_text(encoding="utf-8"))["rows"]
    latencies = {row["model"]: row["median_ms"] for row in rows if row["batch"] == 1}
    assert {x for x, _ in picture.points().values()} == {latencies["6x384"], latencies["3x384"]}
