"""Draws the pictures of pages from the rows of result files.

They are `results.svg` of the first page, `embedding.svg`, and `trimmed.svg`.

python docs/pictures/results.py
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from limbeck.core.blocks import Figure
from limbeck.report.figures import lines_figure
from limbeck.report.pictures import svg_of
from limbeck.report.plots import Lines, Point, Series

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
STUDENT = "3x384"
TEACHER = "6x384"


def points() -> dict[str, Point]:
    """Latency in milliseconds (batch 1, 128 tokens) and Spearman on SICK's test split, times 100, of each model.

    Three-layer models are as fast as each other, whatever their weights.
    """
    latency = {}
    for row in json.loads(_read("model.json"))["rows"]:
        if row["batch"] == 1:
            latency[row["model"]] = row["median_ms"]
    [quickstart] = [row for row in json.loads(_read("quickstart.json")) if row["corpus"] == ["wordnet"]]
    minutes = quickstart["timings_seconds"]["total"] / 60
    [trained] = [
        row
        for row in _rows("embedding_students.jsonl")
        if row["tool"] == "limbeck: vectors and layers" and row["shape"] == STUDENT
    ]
    starts = {}
    for row in _rows("fitted_start.jsonl"):
        # Rows of other kinds than starts are of other students, or of starts that were trained.
        is_start = row.get("kind", "start") == "start"
        if is_start and row["layers"] == [1, 2, 6]:
            starts[row["text"], row["ridge"], row["tokens"], row["pooled"]] = row["sick_test"]
    qualities = {
        f"3 layers, {trained['seconds'] / 60:.0f} minutes on Wikipedia": trained["sick"],
        "3 layers, fitted in closed form": starts["everyday", 0.01, 100_000, 1.0],
        f"3 layers, the quickstart, {minutes:.0f} minutes": quickstart["pairs"]["student_spearman"],
        "3 layers, copied": starts[None, None, None, None],
    }
    places = {
        "all-MiniLM-L6-v2, the teacher (6 layers)": (latency[TEACHER], 100 * quickstart["pairs"]["teacher_spearman"])
    }
    for name, quality in qualities.items():
        places[name] = (latency[STUDENT], 100 * quality)
    return places


def figure() -> Figure:
    """Quality against latency of a teacher, the quickstart's student, and the best students without training."""
    series = [Series(name, [point], "points") for name, point in points().items()]
    x = "latency, ms (one text of 128 tokens, two CPU cores)"
    return lines_figure("Quality against latency", Lines(series, x, "SICK, Spearman × 100"))


def embedding_figure() -> Figure:
    """Retrieval by students of an embedding model against latency, a colour for each maker, means over seeds.

    Students of one shape cost the same, so that they share a latency: the median of their measurements on two cores.
    Where narrower students started in two ways, those by activations are drawn.
    """
    rows = _rows("embedding_students.jsonl")
    by_activations = {(row["shape"], row["tool"]) for row in rows if row.get("start")}
    cost: dict[str, list[float]] = {}
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["hardware"]["threads"] == 2:
            cost.setdefault(row["shape"], []).append(row["ms_in_batches"])
        if (row["shape"], row["tool"]) in by_activations and not row.get("start"):
            continue
        maker, variant = re.fullmatch("([^:,]+)[:,]? ?(.*)", row["tool"]).groups()
        name = f"{row['shape']}, {variant}" if variant else row["shape"]
        scores.setdefault(maker, {}).setdefault(name, []).append(row["symmetric"]["mrr_at_10"])

    series = []
    for maker, values_by_name in scores.items():
        label = "all-MiniLM-L6-v2, the teacher" if maker == "teacher" else maker
        places = []
        for name, values in values_by_name.items():
            places.append((statistics.median(cost[name.split(",")[0]]), statistics.fmean(values)))
        series.append(Series(label, places, "points", names=list(values_by_name)))
    x = "latency, ms a sentence in batches of 32 on two CPU cores"
    return lines_figure("Retrieval against latency", Lines(series, x, "SQuAD, MRR@10"))


MAKINGS = {
    "teacher": "6 layers, not trained",
    "copied 1, 3, 6": "layers 1, 3, 6, not trained",
    "copied 1, 2, 6": "layers 1, 2, 6, not trained",
    "vectors": "3 layers, vectors",
    "vectors and layers": "3 layers, vectors and layers",
}
"""How models with a cut vocabulary were made, by the names in their rows."""


def trimmed_figure() -> Figure:
    """Retrieval by models with a cut vocabulary against their size: a colour for each making, a point for each size."""
    rows = sorted(_rows("trimmed_students.jsonl"), key=lambda row: row["pieces"])
    series = []
    for name, label in MAKINGS.items():
        rows_of_making = [row for row in rows if row["model"] == name]
        points = [(row["megabytes"], row["squad"]) for row in rows_of_making]
        pieces = [f"{row['pieces']:,}" for row in rows_of_making]
        series.append(Series(label, points, "points", names=pieces))
    x = "megabytes of the weights in float32 (8,000 to 30,522 pieces, from left to right)"
    return lines_figure("Retrieval against size", Lines(series, x, "SQuAD, MRR@10 × 100"))


def _read(name: str) -> str:
    return (RESULTS / name).read_text(encoding="utf-8")


def _rows(name: str) -> list[dict[str, Any]]:
    """The rows of a result file that has one a line."""
    return [json.loads(line) for line in _read(name).splitlines()]


def svg(figure: Figure) -> str:
    """The figure as a file with a white background, which is read on light and dark pages."""
    return svg_of(figure, transparent=False).decode()


if __name__ == "__main__":
    for name, drawn in (
        ("results", figure()),
        ("embedding", embedding_figure()),
        ("trimmed", trimmed_figure()),
    ):
        (HERE / f"{name}.svg").write_text(svg(drawn), encoding="utf-8")
