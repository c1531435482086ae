"""Tables and picture of a search of shapes show the numbers of its record."""

import csv
import io
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console

from limbeck.report.search_architecture_figures import architecture_picture
from limbeck.report.search_files import write_search
from limbeck.report.search_tables import architecture_markdown, architecture_table, shapes_csv


def shape(trial, layers, state="trained", **changes):
    found = {
        "trial": trial, "layers": layers, "hidden": 384, "heads": 12, "ffn": 1536,
        "parameters": 12_000_000 + 1_774_464 * layers, "latency_share": 0.1 * layers, "latency_ms": 6.5 * layers,
        "teacher_ms": 65.0, "threads": 2, "note": None, "loss": 0.8 - 0.1 * layers, "reward": 0.3 + 0.05 * layers,
        "steps": 900, "state": state, "reason": None, "rewards_on_the_way": {"300": 0.2}, "training_seconds": 60.0,
    }  # fmt: skip
    return found | changes


@pytest.fixture
def record():
    unknown = {"loss": None, "reward": None}
    reason = "after 300 steps its reward 0.200 was below the median of the others"
    shapes = [
        shape(0, 3),
        shape(1, 6),
        shape(2, 4, loss=0.6, reward=0.39),
        shape(3, 5, "cut", **unknown, steps=300, reason=reason),
        shape(4, 2, "diverged", **unknown, steps=17, reason="its loss is no finite number"),
        shape(5, 12, "refused", **unknown, steps=None, training_seconds=None, reason="1.2 of the | latency, 1 is it"),
    ]
    return {
        "kind": "architecture",
        "name": "shape",
        "teacher": {"name": "bert-base", "shape": "bert 12x768, 12 heads, FFN 3072", "latency_ms": 65.0},
        "methods": ["hidden_states"],
        "space": {"layers": [2, 3, 4, 5, 6, 12], "hidden": [384], "heads": [12], "ffn": [4, 2.5], "shapes": 12},
        "limits": {"parameters": 30_000_000, "latency_share": 1.0},
        "latency": {"device": "cpu", "length": 128, "batch": 1, "dtype": "float32", "seconds": 4.0},
        "loss": {"kind": "hidden", "untrained": 0.75},
        "share": 0.1,
        "sampler": "tpe",
        "shapes": shapes,
        "best": shapes[1],
        "front": [0, 1],
        "recipe": {"student": {"shape": {"layers": 6, "hidden": 384, "heads": 12, "ffn": 1536}}},
        "cost": {"trained": 3, "cut": 1, "diverged": 1, "refused": 1, "failed": 2, "training_seconds": 300.0},
    }


def test_markdown_has_what_was_found_the_front_and_every_shape(record):
    text = architecture_markdown(record)
    assert "Found: **6x384, 12 heads, FFN 1536**, 22,646,784 parameters, 0.600 of the teacher's latency" in text
    front, everything = text.split("## All shapes")
    assert "| 3x384, 12 heads, FFN 1536 | 17,323,392 | 19.50 | 0.300 | 0.5000 | 0.4500 |" in front
    assert "4x384" not in front.split("## Front")[1]
    rows = [line for line in everything.splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0] for row in rows] == ["| 1", "| 0", "| 2", "| 3", "| 4", "| 5"]
    assert "cut: after 300 steps its reward 0.200 was below the median of the others |" in rows[3]
    assert r"refused: 1.2 of the \| latency, 1 is it |" in rows[5] and "| – | – |" in rows[5]
    assert "layers 2 / 3 / 4 / 5 / 6 / 12, hidden 384, heads 12, ffn 4 / 2.5" in text
    assert "Limits: 30,000,000 parameters and 1 of the teacher's latency." in text
    assert "3 of 12 shapes trained to the end; 1 cut, 1 diverged, 1 refused in 5 min of workers' time." in text
    assert "2 trials failed or were lost with their worker" in text


def test_notes_say_what_the_loss_is_and_leave_out_what_is_not(record):
    record["loss"]["kind"] = "relations"
    record["limits"] = {"parameters": None, "latency_share": None}
    record["cost"] |= {"cut": 0, "diverged": 0, "refused": 0, "failed": 0, "training_seconds": 0.0}
    text = architecture_markdown(record)
    assert "divergence of the last layers' query, key and value relations" in text
    assert "Limits" not in text and "failed" not in text and "trained to the end." in text


def test_shapes_that_were_measured_on_a_busy_machine_are_noted(record):
    assert "busy" not in architecture_markdown(record)
    record["shapes"][1]["note"] = "the machine was busy"
    assert "- Latency of 1 of 6 shapes: the machine was busy, so it is of" in architecture_markdown(record)
    assert list(csv.DictReader(io.StringIO(shapes_csv(record))))[1]["note"] == "the machine was busy"


def test_the_terminal_shows_the_same_at_any_width(record):
    for width in (60, 120):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(architecture_table(record))
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= width
        assert "Found: 6x384" in lines[0]


def test_csv_has_every_shape_unrounded(record):
    rows = list(csv.DictReader(io.StringIO(shapes_csv(record))))
    assert [row["trial"] for row in rows] == list("012345")
    assert rows[0]["latency_share"] == repr(0.1 * 3) and rows[5]["loss"] == ""
    assert [row["front"] for row in rows] == ["True", "True", "False", "False", "False", "False"]


def test_the_picture_has_every_trained_shape_the_front_and_the_limit(record):
    picture = architecture_picture(record)
    lines = {line.get_label(): line for line in picture.figure.axes[0].get_lines()}
    assert list(lines["shape"].get_xdata()) == pytest.approx([0.3, 0.6, 0.4])
    assert list(lines["shape"].get_ydata()) == pytest.approx([0.5, 0.2, 0.6])
    assert list(lines["front"].get_xdata()) == pytest.approx([0.3, 0.6])
    assert list(lines["best reward"].get_xdata()) == pytest.approx([0.6])
    assert list(lines["limit"].get_xdata()) == [1.0, 1.0]
    assert "3x384, 12 heads, FFN 1536: 0.300 of the latency, loss 0.5000" in picture.description
    record["limits"]["latency_share"] = None
    labels = [line.get_label() for line in architecture_picture(record).figure.axes[0].get_lines()]
    assert "limit" not in labels


def test_the_front_is_numbered_and_its_shapes_are_named_in_full_without_overlap(record):
    record["shapes"] = [shape(n, 3, heads=n, latency_share=0.3 + 0.004 * n, loss=0.5 - 0.003 * n) for n in range(1, 25)]
    record |= {"front": list(range(1, 25)), "best": record["shapes"][0]}
    figure = architecture_picture(record).figure
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    [names] = figure.legends
    assert [text.get_text() for text in names.get_texts()] == [f"3x384, {n} heads, FFN 1536" for n in range(1, 25)]
    numbers = figure.axes[0].texts
    assert [text.get_text() for text in numbers] == [str(n) for n in range(1, 25)]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in numbers]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert figure.bbox.y0 <= names.get_window_extent().y0 and names.get_window_extent().x1 <= figure.bbox.x1


def test_files_are_written(record, tmp_path):
    tables = {"search.md": architecture_markdown(record), "shapes.csv": shapes_csv(record)}
    files = write_search(tmp_path / "out", record, {"loss_and_latency": architecture_picture(record)}, tables)
    names = {"search.json", "recipe.yaml", "search.md", "shapes.csv", "loss_and_latency.svg", "loss_and_latency.png"}
    assert {path.name for path in files} == names
    assert all(path.stat().st_size for path in files)
