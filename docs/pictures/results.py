"""Draws the pictures of pages from the rows of result files: `results.svg` of the first page, and three of results.

python docs/pictures/results.py
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.core.blocks import Figure
from limbeck.core.intervals import of_correlation
from limbeck.report.figures import MeasuredModel, lines_figure, quality_against_latency
from limbeck.report.pictures import svg_of
from limbeck.report.plots import Lines, Series

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
COPIED = "3 layers, copied"
TRAINED = {
    "limbeck: vectors and layers": "3 layers, half an hour",
    "sentence-transformers": "sentence-transformers",
}
"""Tools with students of `embedding_students.py` in the picture, and their names there."""
MINUTES = 30.0
"""Minutes for which both tools were asked, side by side, a core each."""
SICK_ROWS = 4927
"""Pairs of SICK's test split."""
SICK = "SICK, Spearman × 100"
METHODS = {
    "sentence_embedding": "sentence vectors and hidden states",
    "hidden_states": "hidden states alone",
    "minilmv2": "relations (MiniLMv2)",
}
"""Methods of `budgets.py`, as the legend names them."""


def models() -> list[MeasuredModel]:
    """The models of the first page: milliseconds of a text, and Spearman on SICK's test split, times 100."""
    measured = []
    for row in json.loads(_read("first_page.json"))["rows"]:
        low, high = row["sick"]["interval"]
        measured.append(MeasuredModel(row["model"], row["sick"]["value"], (low, high), row["milliseconds"]))

    # Students of other scripts have the shape of the copied layers, and so their speed.
    [copied] = [model for model in measured if model.name == COPIED]
    for name, sick in other_students():
        ends = of_correlation(sick, SICK_ROWS, ranked=True)
        assert ends is not None
        low, high = ends
        measured.append(MeasuredModel(name, 100 * sick, (100 * low, 100 * high), copied.latency))
    return measured


def other_students() -> Iterator[tuple[str, float]]:
    """Go through students of 3x384 with their scores: the fitted one that is best by other splits, and trained ones."""
    # Rows of other kinds than starts are of other students, or of starts that were trained.
    starts = [row for row in _rows("fitted_start.jsonl") if row.get("kind", "start") == "start"]
    fitted = [row for row in starts if row["text"] is not None]
    best = max(fitted, key=lambda row: row["sick_train_trial"])
    yield "3 layers, fitted", best["sick_test"]
    for row in _rows("embedding_students.jsonl"):
        if row["shape"] == "3x384" and row["tool"] in TRAINED and row["minutes"] == MINUTES:
            yield TRAINED[row["tool"]], row["sick"]
    for row in _rows("budgets.jsonl"):
        if row["part"] == "best" and row["seed"] == 1:
            yield f"3 layers, {row['tokens'] / 1e6:.1f} M tokens", row["sick"]["value"] / 100


def figure() -> Figure:
    """Quality against latency of a teacher, of students of it, and of what one would use in their place."""
    content = json.loads(_read("first_page.json"))
    threads = content["hardware"]["threads"]
    cores = "a CPU core" if threads == 1 else f"{threads} CPU cores"
    x = f"latency, ms (one text of {content['tokens']} tokens, {cores})"
    [figure] = quality_against_latency(models(), SICK, x, front=False)
    return figure


def embedding_figure() -> Figure:
    """Retrieval by students of an embedding model against latency, a colour for each maker, means over seeds.

    Students of one shape cost the same, so that they share a latency: the median of their measurements on two cores.
    Where narrower students started in two ways, those by activations are drawn. Where students of one shape and tool
    were trained for different times, those of the longest are drawn.
    """
    rows = _rows("embedding_students.jsonl")
    by_activations = {(row["shape"], row["tool"]) for row in rows if row.get("start")}
    most_minutes: dict[tuple[str, str], float] = {}
    for row in rows:
        student = (row["shape"], row["tool"])
        most_minutes[student] = max(row["minutes"], most_minutes.get(student, 0.0))
    cost: dict[str, list[float]] = {}
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["hardware"]["threads"] == 2:
            cost.setdefault(row["shape"], []).append(row["ms_in_batches"])
        student = (row["shape"], row["tool"])
        if student in by_activations and not row.get("start"):
            continue
        if row["minutes"] < most_minutes[student]:
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


def tokens_figure() -> Figure:
    """Quality of students of 3x384 against the tokens that they read, a line for each method.

    All students start from the same copied layers, which are the point at 0 tokens.
    """
    [copied] = [model for model in models() if model.name == COPIED]
    assert copied.interval is not None
    rows_by_method: dict[str, list[dict[str, Any]]] = {}
    for row in _rows("budgets.jsonl"):
        # Other students differ in more than tokens: in size, in text, or in a change to the recipe.
        if row["part"] == "tokens" or row["student"] == "3x384":
            rows_by_method.setdefault(row["method"], []).append(row)

    series = []
    for method, rows in rows_by_method.items():
        points = [(0.0, copied.quality)]
        band = [copied.interval]
        for tokens, group in _by_budget(rows):
            points.append((tokens / 1e6, statistics.fmean(row["sick"]["value"] for row in group)))
            lows, highs = zip(*(row["sick"]["interval"] for row in group), strict=True)
            band.append((min(lows), max(highs)))
        series.append(Series(METHODS[method], points, band=band))
    return lines_figure("Quality against text", Lines(series, "million tokens of text", SICK))


def _by_budget(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, list[Mapping[str, Any]]]]:
    """Go through the mean tokens of runs of as many steps, the fewest first, with their rows: one for each seed."""
    groups: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["steps"], []).append(row)
    for _, group in sorted(groups.items()):
        yield statistics.fmean(row["tokens"] for row in group), group


def sizes_figure() -> Figure:
    """Quality of students of other sizes against their latency, after as many steps, beside the teacher.

    Each was timed in turns with the teacher, so that a share of its latency holds where milliseconds would not.
    """
    measured = []
    for row in _rows("budgets.jsonl"):
        name = "the teacher, 6x384" if row["part"] == "teacher" else row["student"]
        if row["part"] in ("teacher", "sizes") and row["seed"] <= 1:
            low, high = row["sick"]["interval"]
            share = 100 / row["times_as_fast"]
            measured.append(MeasuredModel(name, row["sick"]["value"], (low, high), share))
    x = "latency, % of the teacher's (one text of 128 tokens)"
    [figure] = quality_against_latency(measured, SICK, x, front=False)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "results": figure,
    "embedding": embedding_figure,
    "tokens": tokens_figure,
    "sizes": sizes_figure,
}
"""The pictures by the names of their files."""


def _read(name: str) -> str:
    return (RESULTS / name).read_text(encoding="utf-8")


def _rows(name: str) -> list[dict[str, Any]]:
    """The rows of a result file that has one a line."""
    return [json.loads(line) for line in _read(name).splitlines()]


def svg(figure: Figure) -> str:
    """The figure as a file with a white background, which is read on light and dark pages."""
    return svg_of(figure, transparent=False).decode()


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(svg(draw()), encoding="utf-8")
