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


def figure_of(picture, name):
    figures = {"results": picture.figure, "embedding": picture.embedding_figure, "trimmed": picture.trimmed_figure}
    return figures[name]()


PAGES = [
    ("README.md", "docs/pictures/results.svg"),
    ("docs/index.md", "pictures/results.svg"),
    ("docs/results/embedding.md", "../pictures/embedding.svg"),
    ("docs/results/trimmed_students.md", "../pictures/trimmed.svg"),
]


@pytest.mark.parametrize(("page", "target"), PAGES)
def test_the_text_says_the_points(picture, page, target):
    name = target.split("/")[-1].removesuffix(".svg")
    assert {file: text for text, file in Page(page).picture_texts}[target] == figure_of(picture, name).description


@pytest.mark.parametrize("name", ["results", "embedding", "trimmed"])
def test_the_file_is_of_todays_rows(picture, name):
    saved = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    words = re.compile("<text[^>]*>([^<]+)<")
    made = picture.svg(figure_of(picture, name))
    assert words.findall(saved) == words.findall(made), "run: python docs/pictures/results.py"


def test_students_of_embedding_models_are_rows(picture):
    rows = [
        json.loads(line) for line in (RESULTS / "embedding_students.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    points = [point for series in picture.embedding_figure().drawing.series for point in series.points]
    assert len(points) == len({(row["shape"], row["tool"]) for row in rows})
    alone = [row for row in rows if sum((r["shape"], r["tool"]) == (row["shape"], row["tool"]) for r in rows) == 1]
    assert {row["symmetric"]["mrr_at_10"] for row in alone} <= {y for _, y in points}


def test_points_are_rows_of_the_files(picture):
    points = picture.points()
    [quickstart] = json.loads((RESULTS / "quickstart.json").read_text(encoding="utf-8"))
    starts = (RESULTS / "fitted_start.jsonl").read_text(encoding="utf-8").splitlines()
    known = [quickstart["pairs"]["teacher_spearman"], quickstart["pairs"]["student_spearman"]]
    for line in starts:
        row = json.loads(line)
        if row.get("kind", "start") == "start":
            known.append(row["sick_test"])
    students = (RESULTS / "embedding_students.jsonl").read_text(encoding="utf-8").splitlines()
    known += [json.loads(line)["sick"] for line in students]
    assert len(points) == 5
    assert {y for _, y in points.values()} <= {100 * score for score in known}
    description = picture.figure().description
    assert all(show_number(y) in description for _, y in points.values())
    rows = json.loads((RESULTS / "model.json").read_text(encoding="utf-8"))["rows"]
    latencies = {row["model"]: row["median_ms"] for row in rows if row["batch"] == 1}
    assert {x for x, _ in points.values()} == {latencies["6x384"], latencies["3x384"]}
