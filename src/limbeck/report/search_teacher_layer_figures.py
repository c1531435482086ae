"""The picture of a search of teacher layers: score against layer, a line for each rung."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from limbeck.report.drawing import Picture

_DARK, _WARM = "#1b4f8a", "#c8551b"  # told apart in grey and by the colour-blind
_MARKERS = ("o", "s", "^", "D", "v", "P")


def teacher_layer_picture(record: Mapping[str, Any]) -> Picture:
    """Draw the score of every layer at every step that it was scored at, and mark the layer that is recommended."""
    scored = [
        (one["step"], row["layer"], one["score"])
        for row in record["layers"]
        for one in row["scores"]
        if one["score"] is not None
    ]
    steps = sorted({step for step, _, _ in scored})
    best = record["best"]
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    words = []
    for number, step in enumerate(steps):
        points = sorted((layer, score) for at, layer, score in scored if at == step)
        # Later lines are darker; the last is the one that decided.
        axes.plot(
            [layer for layer, _ in points],
            [score for _, score in points],
            color=_DARK,
            alpha=0.35 + 0.65 * (number + 1) / len(steps),
            marker=_MARKERS[number % len(_MARKERS)],
            linestyle="-" if number == len(steps) - 1 else "--",
            label=f"after {step} steps",
        )
        words.append(f"after {step} steps " + ", ".join(f"layer {layer} {score:.2f}" for layer, score in points))
    last = best["scores"][-1]["score"]
    axes.plot([best["layer"]], [last], linestyle="", marker="*", markersize=16, color=_WARM, label="recommended")
    title = f"Students of the teacher's layers: {record['name']}"
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("teacher layer")
    axes.set_ylabel(f"score: mean of {', '.join(record['scores'])} (%)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    return Picture(figure, title, f"Scores: {'; '.join(words)}. Recommended: layer {best['layer']}.")
