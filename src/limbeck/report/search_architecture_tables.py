"""The tables of a search of shapes: the front of loss and latency, and every shape that was tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from limbeck.report.search_grid import SearchGrid, duration, shown, write_csv

_MOST_SHOWN = 20
_FRONT_HEADINGS = ("Shape", "Parameters", "Latency ms", "Of teacher", "Loss", "Reward")
_ALL_HEADINGS = ("Trial", "Shape", "Parameters", "Of teacher", "Loss", "Reward", "State")
_WORDS = ("Shape", "State")
_LOSSES = {
    "hidden": "the variance of the teacher's last hidden states that a linear map of the student's does not explain",
    "relations": "the divergence of the last layers' query, key and value relations",
}
_COLUMNS = (
    *("trial", "layers", "hidden", "heads", "ffn", "parameters", "latency_share", "latency_ms", "teacher_ms"),
    *("threads", "note", "loss", "reward", "steps", "state", "reason", "training_seconds", "front"),
)


def architecture_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the tables for the terminal: the front, the best of all shapes, notes."""
    ranked = ranked_shapes(record)
    parts: list[RenderableType] = [
        Text(_found(record).replace("**", ""), style="bold"),
        Text("Front of loss and latency"),
        front_grid(record).table(),
        Text(f"Shapes, the best {_MOST_SHOWN} of {len(ranked)}" if len(ranked) > _MOST_SHOWN else "Shapes"),
        shapes_grid(ranked[:_MOST_SHOWN]).table(),
    ]
    return Group(*parts, *(Text(note, style="dim") for note in architecture_notes(record)))


def architecture_markdown(record: Mapping[str, Any]) -> str:
    """Return everything as Markdown: what was searched, the shape that was found, the tables, notes."""
    parts = [
        f"# Search of student shapes: {record['name']}",
        _setting(record),
        f"{_found(record)} `limbeck distill recipe.yaml` trains it.",
        f"## Front of loss and latency\n\n{front_grid(record).markdown()}",
        f"## All shapes\n\n{shapes_grid(ranked_shapes(record)).markdown()}",
        "## Notes\n\n" + "\n".join(f"- {note}" for note in architecture_notes(record)),
    ]
    return "\n\n".join(parts) + "\n"


def shapes_csv(record: Mapping[str, Any]) -> str:
    """Return a line for every shape that was tried, in the order of the trials."""
    rows = [{**shape, "front": shape["trial"] in record["front"]} for shape in record["shapes"]]
    return write_csv(rows, _COLUMNS)


def architecture_notes(record: Mapping[str, Any]) -> list[str]:
    """Say what the figures are, what it cost, and what became of shapes that were not trained to the end."""
    cost, latency, limits = record["cost"], record["latency"], record["limits"]
    notes = [
        f"Loss is {_LOSSES[record['loss']['kind']]}, on held-out text, divided by that of an untrained student "
        f"({record['loss']['untrained']:.4f}); reward is (1 - loss) x (share of latency / 0.6)^-0.06.",
        f"Latency: {latency['batch']} x {latency['length']} tokens, {latency['dtype']}, on {latency['device']}, "
        "teacher and student in turns, the least disturbed pass of each; the teacher takes "
        f"{record['teacher']['latency_ms']:.1f} ms. Parameters are the encoder's, without pooler and head.",
    ]
    noted = Counter(shape["note"] for shape in record["shapes"] if shape["note"] is not None)
    notes += [
        f"Latency of {count} of {len(record['shapes'])} shapes: {note}, so it is of processor times; measure on an "
        "idle machine for those of a clock."
        for note, count in noted.items()
    ]
    asked = [
        *([] if limits["parameters"] is None else [f"{limits['parameters']:,} parameters"]),
        *([] if limits["latency_share"] is None else [f"{limits['latency_share']:g} of the teacher's latency"]),
    ]
    if asked:
        notes.append(f"Limits: {' and '.join(asked)}. A shape beyond them cost no training.")
    others = [f"{cost[state]} {state}" for state in ("cut", "diverged", "refused") if cost[state]]
    time = f" in {duration(cost['training_seconds'])} of workers' time" if cost["training_seconds"] else ""
    aside = f"; {', '.join(others)}" if others else ""
    notes.append(f"{cost['trained']} of {record['space']['shapes']:,} shapes trained to the end{aside}{time}.")
    if cost["failed"]:
        notes.append(f"{cost['failed']} trials failed or were lost with their worker; their shapes were tried again.")
    return notes


def describe_shape(shape: Mapping[str, Any]) -> str:
    """Write a shape as the student's blueprint is written."""
    return f"{shape['layers']}x{shape['hidden']}, {shape['heads']} heads, FFN {shape['ffn']}"


def ranked_shapes(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Trained shapes by reward, then those that were cut, diverged or refused, by trial."""
    order = ("trained", "cut", "diverged", "refused")
    return sorted(
        record["shapes"], key=lambda shape: (order.index(shape["state"]), -(shape["reward"] or 0.0), shape["trial"])
    )


def _found(record: Mapping[str, Any]) -> str:
    best = record["best"]
    return (
        f"Found: **{describe_shape(best)}**, {best['parameters']:,} parameters, {best['latency_share']:.3f} of the "
        f"teacher's latency, loss {best['loss']:.4f}, reward {best['reward']:.4f}."
    )


def _setting(record: Mapping[str, Any]) -> str:
    space = record["space"]
    sizes = ", ".join(
        f"{name} {' / '.join(f'{value:g}' for value in space[name])}" for name in ("layers", "hidden", "heads", "ffn")
    )
    return (
        f"Teacher {record['teacher']['name']} ({record['teacher']['shape']}), {' and '.join(record['methods'])} on "
        f"{record['share']:.0%} of the corpus; {sizes} (FFN in multiples of hidden), sampler {record['sampler']}."
    )


def front_grid(record: Mapping[str, Any]) -> SearchGrid:
    """Lay out the shapes that no other beats in both loss and latency, the fastest first."""
    by_trial = {shape["trial"]: shape for shape in record["shapes"]}
    rows = [
        [
            describe_shape(shape),
            shown(shape["parameters"], 0),
            shown(shape["latency_ms"], 2),
            shown(shape["latency_share"], 3),
            shown(shape["loss"], 4),
            shown(shape["reward"], 4),
        ]
        for shape in map(by_trial.__getitem__, record["front"])
    ]
    return SearchGrid(_FRONT_HEADINGS, rows, _WORDS)


def shapes_grid(shapes: Sequence[Mapping[str, Any]]) -> SearchGrid:
    """Lay out shapes with what became of them."""
    rows = [
        [
            str(shape["trial"]),
            describe_shape(shape),
            shown(shape["parameters"], 0),
            shown(shape["latency_share"], 3),
            shown(shape["loss"], 4),
            shown(shape["reward"], 4),
            shape["state"] if shape["reason"] is None else f"{shape['state']}: {shape['reason']}",
        ]
        for shape in shapes
    ]
    return SearchGrid(_ALL_HEADINGS, rows, _WORDS)
