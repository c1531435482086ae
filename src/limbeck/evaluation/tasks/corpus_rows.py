"""Rows of a task as a corpus to train on, and as the development rows of a run: the same that evaluation reads."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.core.kinds import KINDS as FACTS
from limbeck.core.paths import INPUTS
from limbeck.corpus.building.splitting import draw_groups
from limbeck.corpus.files import file_kinds
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.file_sources import find_files
from limbeck.corpus.sources.named_sources import open_rows
from limbeck.corpus.text.documents import Document
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks import registry
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.sources import FileSource
from limbeck.evaluation.tasks.split_files import check_whole, read_split_file
from limbeck.evaluation.tasks.splits import READ_WHOLE, TRAIN, Splits, read_task_rows
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import SplitFacts, Task, TaskData


@dataclass(frozen=True)
class TaskRows:
    """The rows of one split of a task, known before they are read, for a corpus and for an evaluation.

    Both read the same rows, so a student is trained on the rows on which a cell of `limbeck evaluate` is,
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
        registry.check_data(data)
        definition = registry.find_task(name)
        return cls(definition, split or definition.task.select or "", data, registry.folder_of_task(name), **more)

    @property
    def task(self) -> Task:
        """The task, scored on this split alone."""
        return replace(self.definition.task, select=self.split, scored=(self.split,), predicted=())

    @property
    def title(self) -> str:
        """What tables call the split: its name, or its files; nothing of rows that were given as objects."""
        if not self.files:
            return self.split
        paths = [Path(file) for file in self.files]
        return ", ".join(path.name for path in paths if path.parent.name != INPUTS)

    @property
    def pair_column(self) -> str | None:
        """Column of the second text; None where rows have one text."""
        columns = [self.definition.columns]
        for files in self.definition.files.values():
            columns += [file.columns for file in files if file.columns is not None]
        hub = self.definition.hub
        if hub is not None and hub.columns is not None:
            columns.append(hub.columns)
        return next((each.pair for each in columns if each.pair), None)

    @property
    def is_there(self) -> bool:
        """Whether the split is there: of the Hub, whether it is known to be."""
        return bool(self.files) or (bool(self.split) and self._splits.has(self.split))

    def places(self) -> list[str]:
        """Return the files or data sets of the rows.

        Raises:
            CorpusError: if they are not there.
        """
        if self.files:
            return list(self.files)
        splits = self._splits
        return [splits.place(key) for key in splits.whole(self.split)]

    def check(self) -> None:
        """Refuse files whose first row is none of the task, as far as that is known without reading much.

        Raises:
            CorpusError: for a missing file or column, or a label outside the set.
        """
        if not self.files:
            for key in self._splits.whole(self.split):
                self._splits.check(key)
            return
        are_read_whole = any(file_kinds.suffix_of(Path(file)) == READ_WHOLE for file in self.files)
        if not are_read_whole:
            self._read_files({}, None, most=1)

    def load(self) -> TaskData:
        """Return the rows as evaluation has them.

        Raises:
            CorpusError: for a missing or empty file, wrong columns, or a label outside the set.
        """
        notes: dict[str, None] = {}
        rows = self._read(notes, None)
        task = self.task
        if self.files and "answers" in FACTS[task.kind].columns:
            task = replace(task, answerable_only=all(row.answers for row in rows))
        return TaskData(task, {self.split: rows}, tuple(notes))

    def fingerprint(self) -> Any:
        """Return plain values that change when the rows may have changed."""
        described = self.definition.model_dump(
            mode="json",
            include={"type", "columns", "labels", "files", "no_answers"},
            exclude={"files": {"__all__": {"__all__": {"queries", "documents"}}}},  # Of retrieval alone.
        )
        states = [place if place.startswith("hub:") else find_files(place).fingerprint() for place in self.places()]
        values = ["task", described, self.split, list(self.classes), states]
        if self.header:
            values.append(list(self.header))
        return values

    def read(self, report: SourceReport) -> Iterator[LabelledRow]:
        """Iterate over the rows as a corpus has them, classes by the teacher's numbers.

        Args:
            report: Receives rows that are left out, and how many there are beside the published ones.

        Raises:
            CorpusError: as `load`.
        """
        kind = KINDS[self.definition.kind]
        numbers = self.classes or tuple(range(len(self.definition.classes)))
        for row in self._read({}, report):
            trained = kind.for_training(row, numbers)
            if trained is None:
                report.note("answer that its context does not contain, row left out", row.id)
            else:
                yield trained

    def _read(self, notes: dict[str, None], counts: SourceReport | None) -> list[LabelledRow]:
        """Return the rows of the files, else of the split, see `Splits.read`."""
        if self.files:
            return self._read_files(notes, counts)
        return self._splits.read(self.split, notes, counts)

    def _read_files(
        self, notes: dict[str, None], counts: SourceReport | None, *, most: int | None = None
    ) -> list[LabelledRow]:
        """Return the rows of the files that stand in place of the split's own.

        Args:
            notes: Receives rows that were left out, as its keys.
            counts: Receives the same as counts; None for none.
            most: Rows that are read; None for all.
        """
        layouts = self.definition.files.get(self.definition.train, ())
        layout = layouts[0] if layouts else None
        columns = self.definition.columns
        if layout is not None and layout.columns is not None:
            columns = layout.columns
        report = SourceReport()
        placed = itertools.islice(self._placed(layout, report), most)
        rows = read_task_rows(placed, self.definition.task, SplitFacts(), columns, report)
        if not rows:
            raise CorpusError(f"'{', '.join(self.files)}' holds no row.")
        for line in report.lines():
            notes[f"{self.title}: {line}"] = None
        if counts is not None:
            counts.merge(report)
        return rows

    def _placed(self, layout: FileSource | None, report: SourceReport) -> Iterator[PlacedRow]:
        """Yield the rows of the files as they are.

        Args:
            layout: Of the task's own file to train on.
            report: Receives what is left out.
        """
        of_words = KINDS[self.definition.kind].rows_of_words
        for place in self.files:
            if layout is not None and (layout.header or layout.only):
                yield from read_split_file(Path(place).expanduser(), layout, report)
            else:
                yield from open_rows(place, self.header).rows(report, of_words=of_words)
                check_whole(place, report)

    @property
    def _splits(self) -> Splits:
        return Splits(self.definition, self.beside, self.data)


HELD_OUT = "held_out"
"""The split of rows to train on that are held out to choose by, of tasks with a test split alone."""


def hold_out_rows(data: TaskData) -> TaskData:
    """Hold out rows of those to train on, to choose by in place of a test split, which is then scored alone.

    They are 500, or a tenth of fewer than 5,000, by whole groups of near duplicates, as corpora hold out theirs. Rows
    that are all alike stay as they are.
    """
    task = data.task
    rows = data.splits[TRAIN]
    keys = np.array([Document(row.text).key for row in rows], np.uint64)
    is_held_out, _ = draw_groups([(row.text, row.pair) for row in rows], keys)
    held_out = []
    trained = []
    for row, is_held in zip(rows, is_held_out, strict=True):
        if is_held:
            held_out.append(row)
        else:
            trained.append(row)
    if not held_out:
        return data
    note = (
        f"{task.title}: {len(held_out)} of its {len(rows)} training rows are held out to choose settings on, since the "
        f"only other rows are those of {task.select}, which are only scored"
    )
    task = replace(task, select=HELD_OUT, splits={**task.splits, HELD_OUT: SplitFacts()})
    splits = {**data.splits, TRAIN: trained, HELD_OUT: held_out}
    return replace(data, task=task, splits=splits, notes=(*data.notes, note))
