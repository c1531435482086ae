"""Columns of tables: of a task's splits, and of further scores of sentence vectors."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from limbeck.core.studies import Column
from limbeck.kinds.task import Task

_SUFFIXES = {"matched": "m", "mismatched": "mm"}


def task_columns(task: Task) -> list[Column]:
    """Return the columns of a task, the main one first."""
    stems: dict[str, list[str]] = {}
    for split in task.scored:
        stems.setdefault(split.partition(".")[0], []).append(split)
    columns: list[Column] = []
    for index, (stem, splits) in enumerate(stems.items()):
        key, title = _name(task, stem, first=index == 0)
        found = [(key, title, splits)]
        if len(splits) > 1:
            found += [(f"{key}.{_languages(split)}", f"{title} {_languages(split)}", [split]) for split in splits]
        columns += [
            Column(key=key, title=title, task=task.name, kind=task.kind, splits=splits, detail=number > 0)
            for number, (key, title, splits) in enumerate(found)
        ]
    return columns


class Variant(NamedTuple):
    """Further scores of sentence vectors; as text it is put behind the name of a split.

    Attributes:
        width: Components that the vectors are cut to; None leaves them whole.
        asymmetric: Whether the documents are another model's.
    """

    width: int | None = None
    asymmetric: bool = False

    def __str__(self) -> str:
        """As split and column have it behind their names."""
        return f"{'' if self.width is None else f'@{self.width}'}{'@teacher' if self.asymmetric else ''}"

    def place(self) -> tuple[bool, int, bool]:
        """What variants are sorted by: whole vectors first, then the wider ones."""
        return self.width is not None, -(self.width or 0), self.asymmetric

    @property
    def title(self) -> str:
        """As tables have it behind the task."""
        width = "" if self.width is None else f", {self.width} components"
        return width + (", asymmetric" if self.asymmetric else "")


def variant_columns(columns: Sequence[Column], variants: Iterable[Variant]) -> Iterator[Column]:
    """Iterate over the columns of further scores, see `limbeck.evaluation.cell.SimilarityPoint`."""
    for variant, column in product(variants, columns):
        splits = [f"{split}{variant}" for split in column.splits]
        yield column.model_copy(
            update={"key": f"{column.key}{variant}", "title": f"{column.title}{variant.title}", "splits": splits}
        )


def _name(task: Task, stem: str, *, first: bool) -> tuple[str, str]:
    suffix = _SUFFIXES.get(stem.rpartition("_")[2])
    if suffix is not None:
        return f"{task.name}-{suffix}", f"{task.title}-{suffix}"
    return (task.name, task.title) if first else (f"{task.name}:{stem}", f"{task.title} ({stem})")


def _languages(split: str) -> str:
    """Return the languages of a split: one where context and question agree."""
    return "-".join(dict.fromkeys(split.split(".")[1:]))
