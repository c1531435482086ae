"""The picture of a search of shapes: loss against latency, with the front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from limbeck.report.drawing import Picture
from limbeck.report.search_architecture_tables import describe_shape

_DARK, _WARM = "#1b4f8a", "#c8551b"  # told apart in grey and by the colour-blind


def architecture_picture(record: Mapping[str, Any]) -> Picture:
    """Draw the loss of every shape that was trained to the end against its latency, with front, best and limit."""
    trained = [shape for shape in record["shapes"] if shape["state"] == "trained"]
    by_trial = {shape["trial"]: shape for shape in trained}
    front = [by_trial[trial] for trial in record["front"]]
    best, limit = record["best"], record["limits"]["latency_share"]
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*_places(trained), linestyle="", marker="o", color=_DARK, alpha=0.6, label="shape")
    axes.plot(*_places(front), drawstyle="steps-post", marker="o", color=_WARM, label="front")
    axes.plot(*_places([best]), linestyle="", marker="*", markersize=16, color=_WARM, label="best reward")
    for shape in front:
        place = (shape["latency_share"], shape["loss"])
        label = f"{shape['layers']}x{shape['hidden']}"
        axes.annotate(label, place, xytext=(4, 6), textcoords="offset points", fontsize=8)
    if limit is not None:
        axes.axvline(limit, color="#808080", linestyle="--", linewidth=1, label="limit")
    title = f"Loss and latency of student shapes: {record['name']}"
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("latency, as a share of the teacher's")
    axes.set_ylabel("loss (1: untrained)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    words = "; ".join(
        f"{describe_shape(shape)}: {shape['latency_share']:.3f} of the latency, loss {shape['loss']:.4f}"
        for shape in front
    )
    described = f"{len(trained)} shapes. Front, the fastest first: {words}. Best reward: {describe_shape(best)}."
    return Picture(figure, title, described)


def _places(shapes: list[Any]) -> tuple[list[float], list[float]]:
    return [shape["latency_share"] for shape in shapes], [shape["loss"] for shape in shapes]
