"""Rows of a task as a corpus to train on, and as the development rows of a run: those that evaluation reads."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.core.beside import tried_beside
from limbeck.core.kinds import KINDS
from limbeck.core.paths import INPUTS
from limbeck.corpus import file_kinds
from limbeck.corpus.documents import Document
from limbeck.corpus.file_kinds import PlacedRow
from limbeck.corpus.file_sources import find_files
from limbeck.corpus.labelled import NO_ANSWER, Example, without_surrogates
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources import open_rows
from limbeck.corpus.splitting import draw_groups
from limbeck.errors import CorpusError
from limbeck.evaluation import tasks
from limbeck.evaluation.task_files import (
    NO_PLACE,
    READ_WHOLE,
    TRAIN,
    Splits,
    check_whole,
    read_split_file,
    read_task_rows,
)
from limbeck.evaluation.tasks import SplitFacts, Task, TaskDefinition, TaskRow


@dataclass(frozen=True)
class TaskRows:
    """The rows of one split of a task, known before they are read: as evaluation scores them, and as examples.

    Both are made of the same `TaskRow`s, so a student is trained on the rows on which a cell of `limbeck evaluate` is,
    and scored on the development rows on which a cell is.

    Attributes:
        definition: The task.
        split: `"train"`, a split of the task, or `"other task:split"`.
        data: Folder with the task's files; None for the Hub, and for files.
        beside: The folder of its description, where it is a user's.
        files: Sources that hold the split's rows in place of its own files, in the layout of the rows to train on.
        classes: Which output of the teacher each class of the task is; empty takes them in their order.
        header: Names of the fields of tables among `files` that have no header.
    """

    definition: TaskDefinition
    split: str
    data: Path | None = None
    beside: Path | None = None
    files: tuple[str, ...] = ()
    classes: tuple[int, ...] = ()
    header: tuple[str, ...] = ()

    @classmethod
    def of_task(cls, name: str, split: str | None, data: Path | None, **more: Any) -> "TaskRows":
        """Return the rows of a task that is known by name.

        Args:
            name: A key of `TASKS`, or the path of a YAML file that describes an own task.
            split: The split; None for the one on which the best grid point is chosen.
            data: Folder with the task's files; None for the Hub.
            **more: Further attributes.

        Raises:
            RecipeError: for an unknown task.
            CorpusError: for a data folder that is none.
        """
        if data is not None and not data.is_dir():
            raise CorpusError(f"The data folder '{data}' does not exist{tried_beside(str(data))}.")
        definition = tasks.find_task(name)
        beside = Path(name).expanduser().parent if tasks.is_own_task(name) else None
        return cls(definition, split or definition.task.select or "", data, beside, **more)

    @property
    def task(self) -> Task:
        """The task, scored on this split alone."""
        return replace(self.definition.task, select=self.split, scored=(self.split,), predicted=())

    @property
    def title(self) -> str:
        """What tables call the split: its name, or its files; nothing of rows that were given as objects."""
        named = (path.name for path in map(Path, self.files) if path.parent.name != INPUTS)
        return ", ".join(named) if self.files else self.split

    @property
    def pair_column(self) -> str | None:
        """Column of the second text; None where rows have one text."""
        files = [file.columns for of_split in self.definition.files.values() for file in of_split]
        of_hub = [] if self.definition.hub is None else [self.definition.hub.columns]
        return next((each.pair for each in (self.definition.columns, *files, *of_hub) if each and each.pair), None)

    @property
    def is_there(self) -> bool:
        """Whether the split is there: of the Hub, whether it is known to be."""
        return bool(self.files) or (bool(self.split) and self._splits.has(self.split))

    def places(self) -> list[str]:
        """Return the files or data sets of the rows.

        Raises:
            CorpusError: if they are not there.
        """
        splits = self._splits
        return list(self.files) or [splits.place(key) for key in splits.whole(self.split)]

    def check(self) -> None:
        """Refuse files whose first row is none of the task, as far as that is known without reading much.

        Raises:
            CorpusError: for a missing file or column, or a label outside the set.
        """
        if not self.files:
            for key in self._splits.whole(self.split):
                self._splits.check(key)
        elif not any(file_kinds.suffix_of(Path(file)) == READ_WHOLE for file in self.files):
            self._read_files({}, None, 1)

    def load(self) -> tasks.TaskData:
        """Return the rows as evaluation has them.

        Raises:
            CorpusError: for a missing or empty file, wrong columns, or a label outside the set.
        """
        notes: dict[str, None] = {}
        rows = self._read(notes)
        task = self.task
        if self.files and KINDS[task.kind].has_answers:
            task = replace(task, answerable_only=all(row.answers for row in rows))
        return tasks.TaskData(task, {self.split: rows}, tuple(notes))

    def fingerprint(self) -> Any:
        """Return plain values that change when the rows may have changed."""
        described = self.definition.model_dump(
            mode="json",
            include={"type", "columns", "labels", "files", "no_answers"},
            exclude={"files": {"__all__": {"__all__": {"queries", "documents"}}}},  # Of retrieval alone.
        )
        states = [place if place.startswith("hub:") else find_files(place).fingerprint() for place in self.places()]
        return [
            "task",
            described,
            self.split,
            list(self.classes),
            states,
            *([list(self.header)] if self.header else []),
        ]

    def examples(self, report: SourceReport) -> Iterator[Example]:
        """Iterate over the rows as examples, classes by the teacher's numbers.

        Args:
            report: Receives rows that are left out, and how many there are beside the published ones.

        Raises:
            CorpusError: as `load`.
        """
        numbers = self.classes or tuple(range(len(self.definition.classes)))
        for row in self._read({}, report):
            example = example_of(row, self.definition.task, numbers)
            if example is None:
                report.note("answer that its context does not contain, row left out", row.id)
            else:
                yield example

    def _read(self, notes: dict[str, None], told: SourceReport | None = None) -> list[TaskRow]:
        return self._read_files(notes, told) if self.files else self._splits.read(self.split, notes, told)

    def _read_files(self, notes: dict[str, None], told: SourceReport | None, most: int | None = None) -> list[TaskRow]:
        layouts = self.definition.files.get(self.definition.train, ())
        layout = next(iter(layouts), None)
        report, of_words = SourceReport(), KINDS[self.definition.kind].of_words

        def placed() -> Iterator[PlacedRow]:
            for place in self.files:
                if layout is not None and (layout.header or layout.only):
                    yield from read_split_file(Path(place).expanduser(), layout, report)
                else:
                    yield from open_rows(place, self.header).rows(report, of_words=of_words)
                    check_whole(place, report)

        columns = (layout.columns if layout is not None else None) or self.definition.columns
        rows = read_task_rows(itertools.islice(placed(), most), self.definition.task, SplitFacts(), columns, report)
        if not rows:
            raise CorpusError(f"'{', '.join(self.files)}' holds no row.")
        notes |= dict.fromkeys(f"{self.title}: {line}" for line in report.lines())
        if told is not None:
            told.merge(report)
        return rows

    @property
    def _splits(self) -> Splits:
        return Splits(self.definition, self.beside, self.data)


HELD_OUT = "held_out"
"""The split of rows to train on that are held out to choose by, of tasks with a test split alone."""


def hold_out_rows(data: tasks.TaskData) -> tasks.TaskData:
    """Hold out rows of those to train on, to choose by in place of a test split, which is then scored alone.

    They are 500, or a tenth of fewer than 5,000, by whole groups of near duplicates, as corpora hold out theirs. Rows
    that are all alike stay as they are.
    """
    task, rows = data.task, data.splits[TRAIN]
    keys = np.array([Document(row.text).key for row in rows], np.uint64)
    chosen, _ = draw_groups([(row.text, row.pair) for row in rows], keys)
    held, kept = ([row for row, is_held in zip(rows, chosen, strict=True) if is_held == wanted] for wanted in (1, 0))
    if not held:
        return data
    said = (
        f"{task.title}: {len(held)} of its {len(rows)} training rows are held out to choose settings on, since the "
        f"only other rows are those of {task.select}, which are only scored"
    )
    task = replace(task, select=HELD_OUT, splits={**task.splits, HELD_OUT: SplitFacts()})
    return replace(data, task=task, splits={**data.splits, TRAIN: kept, HELD_OUT: held}, notes=(*data.notes, said))


def example_of(row: TaskRow, task: Task, numbers: Sequence[int]) -> Example | None:
    """Return a labelled row as a corpus has it; None for a question whose answer its context does not hold.

    Args:
        row: The row.
        task: Its task.
        numbers: Of each of the task's classes the teacher's number.
    """
    text, pair = without_surrogates(row.text), None if row.pair is None else without_surrogates(row.pair)
    if KINDS[task.kind].has_answers:
        if not row.answers:
            return Example(text, pair, NO_ANSWER)
        start = row.answer_starts[0]
        return Example(text, pair, (start, start + len(row.answers[0]))) if start != NO_PLACE else None
    assert row.label is not None
    if isinstance(row.label, tuple):  # A class for each word, or 1 or 0 for each class.
        if KINDS[task.kind].of_words:
            return Example(text, pair, tuple(numbers[number] for number in row.label))
        return Example(text, pair, tuple(flag for _, flag in sorted(zip(numbers, row.label, strict=True))))
    return Example(text, pair, numbers[int(row.label)] if numbers else float(row.label))
