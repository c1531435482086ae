"""Draws the pictures of pages from the rows of result files: `results.svg` of the first page, and `embedding.svg`.

python docs/pictures/results.py
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from limbeck.core.blocks import Figure
from limbeck.report import plots
from limbeck.report.figures import plot_figure
from limbeck.report.plot_drawing import svg_of

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
_NAMES = {
    "teacher": "all-MiniLM-L6-v2, the teacher",
    "limbeck student": "distilled in 6.5 minutes",
    "truncated teacher": "the teacher's first three",
    "random": "the same shape with random weights",
}


def points() -> dict[str, plots.Point]:
    """Each model's latency in milliseconds (batch 1, 128 tokens) and Spearman on SICK's test split, times 100."""
    rows = json.loads((RESULTS / "model.json").read_text(encoding="utf-8"))["rows"]
    latency = {row["shape"]: row["median_ms"] for row in rows if row["batch"] == 1}
    models = json.loads((RESULTS / "evaluation.json").read_text(encoding="utf-8"))["summary"]["models"]
    quality = {model["name"]: model["columns"]["sick_cosine"]["mean"] for model in models}
    shapes = {model["name"]: model["shape"] for model in models}
    return {name: (latency[shapes[name]], quality[name]) for name in _NAMES}


def figure() -> Figure:
    """Quality against latency of a teacher, its student, and what the student's shape is worth without distillation."""
    (teacher, *students), names = points().values(), [*_NAMES.values()]
    series = [
        plots.Series("6 layers", [teacher], 0, "points", names=names[:1]),
        plots.Series("3 layers", students, 1, "points", names=names[1:]),
    ]
    axes = (
        plots.Axis("latency, ms (one text of 128 tokens, two CPU cores)", from_zero=True),
        plots.Axis("SICK, Spearman × 100", room=0.2),
    )
    return plot_figure("Quality against latency", plots.Plot(series, *axes))


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
    series = [
        plots.Series(
            "all-MiniLM-L6-v2, the teacher" if maker == "teacher" else maker,
            [(statistics.median(cost[name.split(",")[0]]), statistics.fmean(found)) for name, found in named.items()],
            style,
            "points",
            names=[*named],
        )
        for style, (maker, named) in enumerate(scores.items())
    ]
    axes = (
        plots.Axis("latency, ms a sentence in batches of 32 on two CPU cores", from_zero=True, room=0.1),
        plots.Axis("SQuAD, MRR@10", room=0.1),
    )
    return plot_figure("Retrieval against latency", plots.Plot(series, *axes))


def svg(figure: Figure) -> str:
    """The figure as a file that follows its reader's theme, light or dark."""
    shown, at_large = svg_of(figure), 1.3
    light, dark = ("".join(f"--{ink}:{colour};" for ink, colour in theme.items() if f"(--{ink})" in shown)
                   for theme in plots.THEMES.values())  # fmt: skip
    style = f"svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}"
    width, height = (round(at_large * int(side)) for side in re.findall(r'viewBox="0 0 (\d+) (\d+)"', shown)[0])
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
    return shown.replace("<svg", head, 1).replace(">\n", f">\n<style>{style}</style>\n", 1) + "\n"


if __name__ == "__main__":
    for name, drawn in (("results", figure()), ("embedding", embedding_figure())):
        (HERE / f"{name}.svg").write_text(svg(drawn), encoding="utf-8")
