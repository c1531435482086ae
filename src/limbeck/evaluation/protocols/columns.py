"""Columns: what of a task's scores a table shows, named as the papers' tables name it.

| scored splits | columns | title |
|---|---|---|
| one | `rte` | RTE |
| matched and mismatched | `mnli-m`, `mnli-mm` | MNLI-m, MNLI-mm |
| languages of one split | `xnli`, their mean, and `xnli.de` of each | XNLI, XNLI de |
| others | `name`, then `name:split` | title, then title (split) |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limbeck.evaluation.tasks.task import Task

_SUFFIXES = {"matched": "m", "mismatched": "mm"}


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: Names it, in published tables too.
        title: Heads it.
        splits: The scored splits whose mean it is.
        detail: Whether it is a part of another column, for the table of all scores only.
    """

    key: str
    title: str
    splits: tuple[str, ...]
    detail: bool = False


def task_columns(task: Task, scored: Sequence[str] | None = None) -> list[Column]:
    """Return the columns of a task, the main one first.

    Args:
        task: The task.
        scored: The splits that were scored; the task's own by default.
    """
    stems: dict[str, list[str]] = {}
    for split in task.scored if scored is None else scored:
        stems.setdefault(split.partition(".")[0], []).append(split)
    columns: list[Column] = []
    for index, (stem, splits) in enumerate(stems.items()):
        key, title = _name(task, stem, first=index == 0)
        columns.append(Column(key, title, tuple(splits)))
        if len(splits) > 1:
            for split in splits:
                part = _part(task, split)
                columns.append(Column(f"{key}.{part}", f"{title} {part}", (split,), detail=True))
    return columns


def _name(task: Task, stem: str, *, first: bool) -> tuple[str, str]:
    suffix = _SUFFIXES.get(stem.rpartition("_")[2])
    if suffix is not None:
        return f"{task.name}-{suffix}", f"{task.title}-{suffix}"
    return (task.name, task.title) if first else (f"{task.name}:{stem}", f"{task.title} ({stem})")


def _part(task: Task, split: str) -> str:
    """Return what tells a split from its neighbours: the language, said once where context and question agree."""
    parts = split.split(".")[1:]
    return parts[0] if len(set(parts)) == 1 else "-".join(parts)
