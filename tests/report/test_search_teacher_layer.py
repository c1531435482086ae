"""Table and picture of a search of teacher layers show the numbers of its record."""

import csv
import io

import pytest
from rich.console import Console

from limbeck.report.search_tables import layers_csv, teacher_layer_markdown, teacher_layer_table
from limbeck.report.search_teacher_layer_figures import teacher_layer_picture


def scored(step, score):
    return {"step": step, "score": score, "agreement": score + 1, "explained": score - 1}


@pytest.fixture
def record():
    layers = [
        {"rank": 1, "layer": 10, "scores": [scored(10, 40.0), scored(30, 50.0)], "steps": 30, "state": "trained",
         "own_loss": 0.125},
        {"rank": 2, "layer": 12, "scores": [scored(10, 41.0), scored(30, 49.0)], "steps": 30, "state": "trained",
         "own_loss": 0.1},
        {"rank": 3, "layer": 11, "scores": [scored(10, 39.0)], "steps": 10, "state": "cut", "own_loss": 0.5},
        {"rank": 4, "layer": 9, "scores": [], "steps": 3, "state": "diverged", "own_loss": None},
    ]  # fmt: skip
    return {
        "kind": "teacher-layer",
        "name": "layer",
        "teacher": {"name": "bert-base", "shape": "bert 12x768, 12 heads, FFN 3072", "layers": 12},
        "student": {"shape": "bert 6x384, 12 heads, FFN 1536"},
        "methods": ["minilmv2"],
        "share": 1.0,
        "scores": ["agreement", "explained"],
        "rungs": [{"candidates": 4, "end": 10}, {"candidates": 2, "end": 30}],
        "layers": layers,
        "best": layers[0],
        "cost": {"steps": 73, "seconds": 130.0},
    }


def test_markdown_has_the_score_of_every_layer_at_every_rung(record):
    text = teacher_layer_markdown(record)
    assert "Recommended: teacher layer **10** of 12, score 50.00 after 30 steps." in text
    assert "| Rank | Layer | Step 10 | Step 30 | agreement | explained | Own loss | Dropped |" in text
    assert "| 1 | 10 | 40.00 | 50.00 | 51.00 | 49.00 | 0.1250 | – |" in text
    assert "| 3 | 11 | 39.00 | – | 40.00 | 38.00 | 0.5000 | after 10 |" in text
    assert "| 4 | 9 | – | – | – | – | – | diverged |" in text
    assert "Successive halving: 4 to step 10, 2 to step 30." in text and "73 steps in all, in 2 min" in text
    record["rungs"] = []
    assert "halving" not in teacher_layer_markdown(record)


def test_the_terminal_shows_the_same(record):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(teacher_layer_table(record))
    text = console.export_text()
    assert "Recommended: teacher layer 10 of 12" in text and "after 10" in text


def test_csv_has_every_score(record):
    rows = list(csv.DictReader(io.StringIO(layers_csv(record))))
    assert [(row["layer"], row["step"], row["score"]) for row in rows] == [
        ("10", "10", "40.0"), ("10", "30", "50.0"), ("12", "10", "41.0"), ("12", "30", "49.0"), ("11", "10", "39.0"),
        ("9", "", ""),
    ]  # fmt: skip
    assert rows[0]["own_loss"] == "0.125" and rows[-1]["state"] == "diverged"


def test_the_picture_has_a_line_for_every_rung(record):
    picture = teacher_layer_picture(record)
    lines = {line.get_label(): line for line in picture.figure.axes[0].get_lines()}
    assert list(lines["after 10 steps"].get_xdata()) == [10, 11, 12]
    assert list(lines["after 10 steps"].get_ydata()) == [40.0, 39.0, 41.0]
    assert list(lines["after 30 steps"].get_xdata()) == [10, 12]
    star = lines["recommended"]
    assert list(star.get_xdata()) == [10] and list(star.get_ydata()) == [50.0]
    assert "after 30 steps layer 10 50.00, layer 12 49.00" in picture.description
    assert picture.description.endswith("Recommended: layer 10.")


def test_scores_that_are_none_are_left_out(record):
    record["layers"][2]["scores"] = [{"step": 10, "score": None, "agreement": None, "explained": 3.0}]
    lines = {line.get_label(): line for line in teacher_layer_picture(record).figure.axes[0].get_lines()}
    assert list(lines["after 10 steps"].get_xdata()) == [10, 12]
    assert "| 3 | 11 | – | – | – | 3.00 |" in teacher_layer_markdown(record)
