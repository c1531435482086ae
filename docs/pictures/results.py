"""Draws `results.svg`, the picture of the first page, from the rows of two result files.

python docs/pictures/results.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
_INK, _QUIET, _OWN, _OTHER = "#1f2430", "#6b7280", "#3f51b5", "#c77d23"
_PEERS = {"relation_loop": "a loop like minilmv2.bb's", "bertdistiller": "bertdistiller"}


def kept() -> dict[str, float]:
    """What the quickstart's student has of its teacher, as shares."""
    run = json.loads((RESULTS / "quickstart.json").read_text(encoding="utf-8"))[0]
    figures, pairs = run["evaluation"], run["pairs"]
    teacher, student = figures["teacher"], figures["student"]
    latencies = {
        f"latency at batch {batch['batch_size']}": 1 / batch["speedup"] for batch in figures["latency"]["batches"]
    }
    return {
        "Transformer parameters": student["parameters"]["transformer"] / teacher["parameters"]["transformer"],
        **latencies,
        "Spearman on SICK": pairs["student_spearman"] / pairs["teacher_spearman"],
        "retrieval MRR@10": student["retrieval"]["mrr_at_10"] / teacher["retrieval"]["mrr_at_10"],
    }


def step_times() -> dict[tuple[int, str], float]:
    """How long a training step of each peer takes, in steps of limbeck, all in bfloat16."""
    rows = json.loads((RESULTS / "training_step.json").read_text(encoding="utf-8"))["rows"]
    return {
        (row["length"], side["side"]): side["time_ratio"]["median"]
        for row in rows
        for side in row["sides"]
        if side["dtype"] == "bfloat16" and side["side"] in _PEERS
    }


def description() -> str:
    """What the picture shows, in words."""
    shares, times = kept(), step_times()
    keeps = ", ".join(f"{name} {share:.0%}".replace("%", " %") for name, share in shares.items())
    steps = ", ".join(f"{_PEERS[peer]} at {length} tokens {ratio:.2f}" for (length, peer), ratio in times.items())
    return (
        f"Left: what the quickstart's student has of its teacher: {keeps}. "
        f"Right: time of a MiniLMv2 training step on two CPU cores in bfloat16, in steps of limbeck: {steps}."
    )


def draw() -> Figure:
    """Draw both panels."""
    figure = Figure(figsize=(9.6, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    shares, times = kept(), step_times()
    _bars(left, list(shares), [100 * share for share in shares.values()], "{:.0f} %", [_OWN] * len(shares))
    left.set_title("The quickstart's student (its teacher: 100 %)", loc="left", fontsize=10)
    left.axvline(100, color=_QUIET, linewidth=1)
    names = [f"{_PEERS[peer]}, {length} tokens" for length, peer in times]
    _bars(right, ["limbeck", *names], [1.0, *times.values()], "{:.2f}", [_OWN, *[_OTHER] * len(times)])
    right.set_title("Time of a training step (limbeck: 1)", loc="left", fontsize=10)
    return figure


def _bars(axes: Axes, names: list[str], values: list[float], form: str, colours: list[str]) -> None:
    axes.barh(names, values, color=colours, height=0.62)
    for place, value in enumerate(values):
        axes.text(value - max(values) * 0.015, place, form.format(value), va="center", ha="right", color="white")
    axes.set_xlim(0, max(values) * 1.08)
    axes.invert_yaxis()
    axes.tick_params(left=False, bottom=False, labelbottom=False, labelsize=9, colors=_INK)
    for side in axes.spines.values():
        side.set_visible(False)


if __name__ == "__main__":
    with mpl.rc_context({"svg.hashsalt": "limbeck"}):
        draw().savefig(HERE / "results.svg", metadata={"Date": None, "Description": description()})
