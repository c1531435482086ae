"""The picture of a search of shapes: loss against latency, with the front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from limbeck.report.drawing import Picture
from limbeck.report.records import describe_shape

_DARK, _WARM = "#1b4f8a", "#c8551b"  # told apart in grey and by the colour-blind


def architecture_picture(record: Mapping[str, Any]) -> Picture:
    """Draw the loss of every shape that was trained to the end against its latency, with front, best and limit."""
    trained = [shape for shape in record["shapes"] if shape["state"] == "trained"]
    by_trial = {shape["trial"]: shape for shape in trained}
    front = [by_trial[trial] for trial in record["front"]]
    best, limit = record["best"], record["limits"]["latency_share"]
    figure = Figure(figsize=(8.6, max(4.4, 1.0 + 0.2 * len(front))), layout="constrained")
    axes = figure.subplots()
    axes.plot(*_places(trained), linestyle="", marker="o", color=_DARK, alpha=0.6, label="shape")
    axes.plot(*_places(front), drawstyle="steps-post", marker="o", color=_WARM, label="front")
    axes.plot(*_places([best]), linestyle="", marker="*", markersize=16, color=_WARM, label="best reward")
    _number(axes, front)
    if limit is not None:
        axes.axvline(limit, color="#808080", linestyle="--", linewidth=1, label="limit")
    title = f"Loss and latency of student shapes: {record['name']}"
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("latency, as a share of the teacher's")
    axes.set_ylabel("loss (1: untrained)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    keys = [Line2D([], [], linestyle="", marker=f"${number}$", color="black") for number in range(1, len(front) + 1)]
    names = [describe_shape(shape) for shape in front]
    figure.legend(
        keys, names, title="front, the fastest first", fontsize=8, title_fontsize=8, loc="outside right upper"
    )
    words = "; ".join(
        f"{describe_shape(shape)}: {shape['latency_share']:.3f} of the latency, loss {shape['loss']:.4f}"
        for shape in front
    )
    described = f"{len(trained)} shapes. Front, the fastest first: {words}. Best reward: {describe_shape(best)}."
    return Picture(figure, title, described)


def _number(axes: Axes, front: list[Any]) -> None:
    """Number the points of the front, whose shapes are too long to stand beside them.

    No line and no second point is to the lower left of a point of the front or close to its upper right, so numbers
    that alternate between both keep apart even where points are close.
    """
    for number, shape in enumerate(front, start=1):
        is_below = number % 2 == 1
        axes.annotate(
            str(number),
            (shape["latency_share"], shape["loss"]),
            xytext=(-5, -5) if is_below else (5, 5),
            textcoords="offset points",
            ha="right" if is_below else "left",
            va="top" if is_below else "bottom",
            fontsize=8,
        )


def _places(shapes: list[Any]) -> tuple[list[float], list[float]]:
    return [shape["latency_share"] for shape in shapes], [shape["loss"] for shape in shapes]
