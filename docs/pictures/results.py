"""Draws the pictures of pages from the rows of result files: `results.svg` of the first page, and `embedding.svg`.

python docs/pictures/results.py
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from limbeck.core.blocks import Figure
from limbeck.report.figures import lines_figure
from limbeck.report.pictures import svg_of
from limbeck.report.plots import Lines, Point, Series

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
_NAMES = {
    "teacher": "all-MiniLM-L6-v2, the teacher",
    "limbeck student": "distilled in 6.5 minutes",
    "truncated teacher": "the teacher's first three",
    "random": "the same shape with random weights",
}


def points() -> dict[str, Point]:
    """Each model's latency in milliseconds (batch 1, 128 tokens) and Spearman on SICK's test split, times 100."""
    rows = json.loads((RESULTS / "model.json").read_text(encoding="utf-8"))["rows"]
    latency = {row["shape"]: row["median_ms"] for row in rows if row["batch"] == 1}
    models = json.loads((RESULTS / "evaluation.json").read_text(encoding="utf-8"))["summary"]["models"]
    quality = {model["name"]: model["columns"]["sick_cosine"]["mean"] for model in models}
    shapes = {model["name"]: model["shape"] for model in models}
    return {name: (latency[shapes[name]], quality[name]) for name in _NAMES}


def figure() -> Figure:
    """Quality against latency of a teacher, its student, and what the student's shape is worth without distillation."""
    series = []
    for name, point in points().items():
        layers = "6 layers" if name == "teacher" else "3 layers"
        series.append(Series(f"{_NAMES[name]} ({layers})", [point], "points"))
    x = "latency, ms (one text of 128 tokens, two CPU cores)"
    return lines_figure("Quality against latency", Lines(series, x, "SICK, Spearman × 100"))


def embedding_figure() -> Figure:
    """Retrieval by students of an embedding model against latency, a colour for each maker, means over seeds.

    Students of one shape cost the same, so that they share a latency: the median of their measurements on two cores.
    Where narrower students started in two ways, those by activations are drawn.
    """
    rows = [
        json.loads(line) for line in (RESULTS / "embedding_students.jsonl").read_text(encoding="utf-8").splitlines()
    ]
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


def svg(figure: Figure) -> str:
    """The figure as a file with a white background, which is read on light and dark pages."""
    return svg_of(figure, transparent=False).decode()


if __name__ == "__main__":
    for name, drawn in (("results", figure()), ("embedding", embedding_figure())):
        (HERE / f"{name}.svg").write_text(svg(drawn), encoding="utf-8")
