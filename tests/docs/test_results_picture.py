"""The picture of the first page shows the rows of the committed files, and says them in words."""

import json
import re

import pytest

from limbeck.report.figures import show_number
from tests.docs.pages import ROOT, Page, script

RESULTS = ROOT / "benchmarks" / "results"
PICTURES = ROOT / "docs" / "pictures"


@pytest.fixture(scope="module")
def picture():
    return script("docs/pictures/results.py")


@pytest.mark.parametrize(("page", "target"), [("README.md", "docs/pictures/results.svg"),
                                              ("docs/index.md", "pictures/results.svg"),
                                              ("docs/results/embedding.md", "../pictures/embedding.svg"),
                                              ("docs/results/budgets.md", "../pictures/sizes.svg"),
                                              ("docs/results/budgets.md", "../pictures/tokens.svg")])  # fmt: skip
def test_the_text_says_the_points(picture, page, target):
    name = target.split("/")[-1].removesuffix(".svg")
    assert {file: text for text, file in Page(page).picture_texts}[target] == picture.PICTURES[name]().description


@pytest.mark.parametrize("name", ["results", "embedding", "tokens", "sizes"])
def test_the_file_is_of_todays_rows(picture, name):
    saved = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    words = re.compile("<text[^>]*>([^<]+)<")
    made = picture.svg(picture.PICTURES[name]())
    assert words.findall(saved) == words.findall(made), "run: python docs/pictures/results.py"


def test_students_of_embedding_models_are_rows(picture):
    rows = [
        json.loads(line) for line in (RESULTS / "embedding_students.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    points = [point for series in picture.embedding_figure().drawing.series for point in series.points]
    assert len(points) == len({(row["shape"], row["tool"]) for row in rows})
    alone = [row for row in rows if sum((r["shape"], r["tool"]) == (row["shape"], row["tool"]) for r in rows) == 1]
    assert {row["symmetric"]["mrr_at_10"] for row in alone} <= {y for _, y in points}


def test_models_of_the_first_page_are_rows(picture):
    rows = json.loads((RESULTS / "first_page.json").read_text(encoding="utf-8"))["rows"]
    description = picture.figure().description
    for row in rows:
        low, high = row["sick"]["interval"]
        assert low < row["sick"]["value"] < high
        numbers = ", ".join(show_number(number) for number in (row["milliseconds"], row["sick"]["value"]))
        assert f"{row['model']}: {numbers}" in description


def test_what_nobody_trained_stands_beside_what_was_trained(picture):
    qualities = {model.name: model.quality for model in picture.models()}
    starts = (RESULTS / "fitted_start.jsonl").read_text(encoding="utf-8").splitlines()
    untrained = []
    for line in starts:
        row = json.loads(line)
        if row.get("kind", "start") == "start":
            untrained.append(100 * row["sick_test"])
    assert qualities["3 layers, fitted"] in untrained
    students = (RESULTS / "embedding_students.jsonl").read_text(encoding="utf-8").splitlines()
    trained = [100 * json.loads(line)["sick"] for line in students]
    assert {"3 layers, copied", "3 layers, the quickstart"} <= {*qualities}
    assert qualities["3 layers, half an hour"] in trained
    assert qualities["sentence-transformers"] in trained
