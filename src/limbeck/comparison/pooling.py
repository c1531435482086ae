"""The runs of a combination that differ in their seed, as one row: means and deviations of what `summarise` gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from limbeck.experiments.results import Runs

Figures = dict[str, Any]
"""`mean`, `deviation` (None of one run) and `runs`, as `limbeck.experiments.summary` has them."""


def figures(values: Iterable[float]) -> Figures:
    """Return mean and sample deviation of values.

    Args:
        values: At least one.
    """
    runs = Runs(tuple(values))
    return {"mean": runs.mean, "deviation": runs.deviation, "runs": list(runs.values)}


def pool_models(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Pool the summaries of students that differ in the seed of their distillation.

    A student's figure is its mean over fine-tunings. Of several students the mean is over these, and the deviation too;
    of one it is over its fine-tunings.

    Args:
        entries: As in `models` of a summary.

    Returns:
        `columns`, `averages` and `retention`, as one of them has it.
    """
    if len(entries) == 1:
        return {name: entries[0][name] for name in ("columns", "averages", "retention")}
    columns = {
        key: _pooled_column([entry["columns"][key] for entry in entries if key in entry["columns"]])
        for key in _keys(entry["columns"] for entry in entries)
    }
    averages = {
        name: _pooled_average([entry["averages"][name] for entry in entries if entry["averages"][name] is not None])
        for name in _keys(entry["averages"] for entry in entries)
    }
    # What is kept is linear in the score: the mean of what each keeps is what the mean keeps.
    kept = {
        key: figures(entry["retention"][key] for entry in entries if key in entry["retention"])["mean"]
        for key in _keys(entry["retention"] for entry in entries)
        # A student below 0 has none, and the mean of the others would flatter.
        if all(key in entry["retention"] for entry in entries if key in entry["columns"])
    }
    return {"columns": columns, "averages": averages, "retention": kept}


def _pooled_column(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    metrics = {
        metric: figures(cell["metrics"][metric]["mean"] for cell in cells if metric in cell["metrics"])
        for metric in _keys(cell["metrics"] for cell in cells)
    }
    return {**figures(cell["mean"] for cell in cells), "metrics": metrics}


def _pooled_average(found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Pool averages over the same tasks: where a student lacks one, it is left out of the average."""
    if not found:
        return None
    widest = max((average["of"] for average in found), key=len)
    alike = [average for average in found if average["of"] == widest]
    complete = all(average["complete"] for average in alike)
    return {**figures(average["mean"] for average in alike), "of": widest, "complete": complete}


def _keys(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))
