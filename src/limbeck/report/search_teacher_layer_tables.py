"""The tables of a search of teacher layers: every candidate with its score at each rung."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from limbeck.report.search_grid import NOTHING, SearchGrid, duration, shown, write_csv

_ENDS = {"cut": "after {}", "trained": NOTHING, "diverged": "diverged"}


def teacher_layer_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the table for the terminal, with what was found above it and notes below."""
    found = Text(_found(record).replace("**", ""), style="bold")
    notes = [Text(note, style="dim") for note in teacher_layer_notes(record)]
    return Group(found, layers_grid(record).table(), *notes)


def teacher_layer_markdown(record: Mapping[str, Any]) -> str:
    """Return everything as Markdown: what was searched, the layer that was found, the table, notes."""
    parts = [
        f"# Search of teacher layers: {record['name']}",
        f"Teacher {record['teacher']['name']} ({record['teacher']['shape']}), student {record['student']['shape']}, "
        f"{' and '.join(record['methods'])} on {record['share']:.0%} of the corpus.",
        f"{_found(record)} `limbeck distill recipe.yaml` trains it.",
        f"## Layers\n\n{layers_grid(record).markdown()}",
        "## Notes\n\n" + "\n".join(f"- {note}" for note in teacher_layer_notes(record)),
    ]
    return "\n\n".join(parts) + "\n"


def layers_csv(record: Mapping[str, Any]) -> str:
    """Return a line for every score of every layer, the best layer first, unrounded."""
    columns = ("rank", "layer", "step", "score", *record["scores"], "steps", "state", "own_loss")
    rows = [{**row, **scored} for row in record["layers"] for scored in row["scores"] or [{}]]
    return write_csv(rows, columns)


def teacher_layer_notes(record: Mapping[str, Any]) -> list[str]:
    """Say what the scores are, who was dropped when, and what it cost."""
    cost = record["cost"]
    notes = [
        f"Score is the mean of {' and '.join(record['scores'])}, in percent, on held-out text: how the student orders "
        "sentence pairs as its teacher does, and how much of the teacher's last hidden states a linear map of its own "
        "explains. Own loss is each student's own, and comparable between no two layers.",
        f"All candidates were trained at once: {cost['steps']:,} steps in all, in {duration(cost['seconds'])}, and the "
        "teacher ran once a step for all of them.",
    ]
    if len(record["rungs"]) > 1:
        rounds = ", ".join(f"{rung['candidates']} to step {rung['end']}" for rung in record["rungs"])
        notes.append(f"Successive halving: {rounds}. Who was dropped earlier ranks lower.")
    return notes


def _found(record: Mapping[str, Any]) -> str:
    best = record["best"]
    last = best["scores"][-1]
    return (
        f"Recommended: teacher layer **{best['layer']}** of {record['teacher']['layers']}, score {last['score']:.2f} "
        f"after {last['step']} steps."
    )


def layers_grid(record: Mapping[str, Any]) -> SearchGrid:
    """Lay out every layer with its score at each rung."""
    steps = sorted({scored["step"] for row in record["layers"] for scored in row["scores"]})
    headings = ["Rank", "Layer", *(f"Step {step}" for step in steps), *record["scores"], "Own loss", "Dropped"]
    rows = []
    for row in record["layers"]:
        by_step = {scored["step"]: scored for scored in row["scores"]}
        last = row["scores"][-1] if row["scores"] else {}
        rows.append(
            [
                str(row["rank"]),
                str(row["layer"]),
                *(shown(by_step.get(step, {}).get("score"), 2) for step in steps),
                *(shown(last.get(name), 2) for name in record["scores"]),
                shown(row["own_loss"], 4),
                _ENDS[row["state"]].format(row["steps"]),
            ]
        )
    return SearchGrid(headings, rows, words=("Dropped",))
