"""Parts of a model card that are made of a run's record: the budget, the layer mapping, scores on tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from limbeck.report.figures import format_count
from limbeck.report.task_scores import TaskScores

_PAIR = re.compile(r"(.+)_(\d+)_(\d+)")


def budget(record: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> str:
    """Return what training took in one line: steps, tokens, hours and where; empty if nothing is known.

    Args:
        record: A run's record.
        stages: Its stages.
    """
    steps, tokens, seconds = (_total(stages, key) for key in ("steps", "tokens", "seconds"))
    parts = [f"{steps:,.0f} steps" if steps else "", f"{format_count(tokens)} tokens" if tokens else ""]
    if seconds:
        unit, size = ("hours", 3600) if seconds >= 3600 else ("minutes", 60) if seconds >= 60 else ("seconds", 1)
        parts.append(f"{seconds / size:.1f} {unit} of training")
    line = ", ".join(part for part in parts if part)
    device = _device(record, stages)
    return f"{line}{f' on {device}' if device else ''}" if line else ""


def layer_rows(stage: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return a stage's layer mapping: student layers, teacher layers, terms; layer 0 is the embedding.

    A record that does not hold it may have it in the names of its terms (`hidden_2_6`).

    Args:
        stage: A stage of the record.
    """
    found: dict[tuple[str, str], list[str]] = {}
    layers = stage.get("layers")
    for entry in layers if isinstance(layers, Sequence) and not isinstance(layers, str) else ():
        if isinstance(entry, Mapping):
            key = (_numbers(entry.get("student")), _numbers(entry.get("teacher")))
            terms = entry.get("terms")
            found.setdefault(key, []).extend(map(str, terms if isinstance(terms, list) else []))
    if not found:
        terms = stage.get("final_terms")
        for name in terms if isinstance(terms, Mapping) else ():
            if match := _PAIR.fullmatch(str(name)):
                found.setdefault((match[2], match[3]), []).append(match[1])
    rows = [(student, teacher, ", ".join(dict.fromkeys(names))) for (student, teacher), names in found.items()]
    return [row for row in rows if row[0] and row[1]]


def score_rows(scores: TaskScores) -> list[tuple[str, str, str, str, str]]:
    """Return the cells of a table of task scores: task, metric, teacher, student, what is kept."""
    return [
        (row.title, row.metric, row.teacher or "–", row.student, "–" if row.kept is None else f"{row.kept:.1f} %")
        for row in scores.rows
    ]


def _device(record: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> str:
    """The accelerator or processor that trained."""
    hardware = record.get("hardware")
    hardware = hardware if isinstance(hardware, Mapping) else {}
    on_processor = all(str(stage.get("device", "cpu")) == "cpu" for stage in stages)
    name = hardware.get("cpu") if on_processor else hardware.get("device")
    return str(name) if name and name != "cpu" else ""


def _total(stages: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(sum(stage[key] for stage in stages if isinstance(stage.get(key), (int, float))))


def _numbers(value: Any) -> str:
    return ", ".join(str(number) for number in value) if isinstance(value, list) else ""
