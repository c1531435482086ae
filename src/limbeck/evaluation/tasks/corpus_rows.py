"""`TaskRows`, the rows of one split of a task for a run: a corpus to distil on, or development rows.

They are the same rows that `limbeck evaluate` reads, so students that are distilled on a task and models that are
fine-tuned on it can be compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from limbeck.core.kinds import KINDS as FACTS
from limbeck.core.paths import INPUTS
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import UNKNOWN_LAYOUT, PlacedRow, TableLayout
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.file_sources import find_files
from limbeck.corpus.sources.named_sources import open_rows
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks import registry
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.sources import FileSource
from limbeck.evaluation.tasks.split_files import check_whole, is_read_whole, read_labelled_rows, read_split_file
from limbeck.evaluation.tasks.splits import SplitContent, Splits
from limbeck.kinds.columns import Columns
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import SplitFacts, Task, TaskData


@dataclass(frozen=True)
class TaskRows:
    """The rows of one split of a task, known before they are read, for a corpus and for an evaluation.

    Attributes:
        definition: The task.
        split: `"train"`, a split of the task, or `"other task:split"`.
        data: Folder with the task's files; None for the Hub, and for files.
        beside: The folder of its description, where it is a user's.
        files: Sources that hold the split's rows in place of its own files, in the layout of the rows to train on.
        classes: For each class of the task, the index of the teacher's output for it; empty takes the outputs in their
            order.
        layout: Layout of the tables among `files`.
        columns_of_recipe: Whether a recipe names the columns of `files`, and no task.
    """

    definition: TaskDefinition
    split: str
    data: Path | None = None
    beside: Path | None = None
    files: tuple[str, ...] = ()
    classes: tuple[int, ...] = ()
    layout: TableLayout = UNKNOWN_LAYOUT
    columns_of_recipe: bool = False

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
            CorpusError: for a data folder that is none, and for a file that an own task names and that is not there.
        """
        registry.check_data(data)
        definition = registry.find_task(name)
        beside = registry.folder_of_task(name)
        Splits(definition, beside=beside, data=data).check_files()
        return cls(definition, split or definition.task.select or "", data=data, beside=beside, **more)

    @property
    def task(self) -> Task:
        """The task, scored on this split alone."""
        return replace(self.definition.task, select=self.split, scored=(self.split,), predicted=())

    @property
    def title(self) -> str:
        """What tables call the split: its name, or the names of its files; "" for rows that were given as objects."""
        if not self.files:
            return self.split
        paths = [Path(file) for file in self.files]
        # Objects are written to files in a folder of this name, which mean nothing to the user.
        return ", ".join(path.name for path in paths if path.parent.name != INPUTS)

    @property
    def pair_column(self) -> str | None:
        """Column of the second text; None where rows have one text."""
        # The task, each of its files and its data set on the Hub may name columns.
        all_columns: list[Columns | None] = [self.definition.columns]
        for sources in self.definition.files.values():
            all_columns += [source.columns for source in sources]
        if self.definition.hub is not None:
            all_columns.append(self.definition.hub.columns)
        for columns in all_columns:
            if columns is not None and columns.pair:
                return columns.pair
        return None

    @property
    def is_there(self) -> bool:
        """Whether the split is there: of the Hub, whether it is known to be."""
        if self.files:
            return True
        return bool(self.split) and self._splits.has(self.split)

    def places(self) -> list[str]:
        """Return the files or data sets of the rows.

        Raises:
            CorpusError: if they are not there.
        """
        if self.files:
            return list(self.files)
        splits = self._splits
        return [splits.place(key) for key in splits.keys_to_read(self.split)]

    def check(self) -> None:
        """Refuse files whose first row is none of the task, as far as that is known without reading much.

        Raises:
            CorpusError: for a missing file or column, or a label outside the set.
        """
        self.first_rows(most=1)

    def first_rows(self, most: int) -> list[LabelledRow]:
        """Return the first rows, as evaluation has them; none where they are not known without reading much.

        Args:
            most: Rows that are read; of a split that joins others, rows of each.

        Raises:
            CorpusError: for a missing file or column, or a label outside the set.
        """
        if not self.files:
            rows: list[LabelledRow] = []
            for key in self._splits.keys_to_read(self.split):
                rows += self._splits.first_rows(key, most)
            return rows
        are_read_whole = any(is_read_whole(Path(file)) for file in self.files)
        if are_read_whole:
            return []
        return self._read_files(most).rows

    def load(self) -> TaskData:
        """Return the rows as evaluation has them.

        Raises:
            CorpusError: for a missing or empty file, wrong columns, or a label outside the set.
        """
        content = self._read()
        task = self.task
        if self.files and "answers" in FACTS[task.kind].columns:
            # The task's description says whether its own files have questions without answers. For the user's files it
            # is found out by their rows.
            task = replace(task, answerable_only=all(row.answers for row in content.rows))
        return TaskData(task, {self.split: content.rows}, tuple(dict.fromkeys(content.notes)))

    def fingerprint(self) -> Any:
        """Return plain values that change when the rows may have changed."""
        described = self.definition.model_dump(
            mode="json",
            include={"type", "columns", "labels", "files", "no_answers"},
            # Of every file of every split two fields are left out: only retrieval has files of queries and documents,
            # and nothing is trained on it.
            exclude={"files": {"__all__": {"__all__": {"queries", "documents"}}}},
        )
        states: list[Any] = []
        for place in self.places():
            if place.startswith("hub:"):
                # A data set of the Hub is known by its address.
                states.append(place)
            else:
                states.append(find_files(place).fingerprint())
        values = ["task", described, self.split, list(self.classes), states]
        if self.layout != UNKNOWN_LAYOUT:
            values.append(self.layout)
        # No user changes the description of a built-in task, so these fields are left out of its fingerprint.
        if self._is_of_file:
            values += self._later_fields()
        return values

    @property
    def _is_of_file(self) -> bool:
        """Whether a file of the user describes the task, and not limbeck itself or a recipe."""
        return self.beside is not None

    def _later_fields(self) -> list[Any]:
        """Return what a fingerprint has of the fields that earlier versions of limbeck did not look at.

        A field that is not given adds nothing, so that the fingerprints of those versions stay.
        """
        values: list[Any] = []
        if self.definition.quotes is not None:
            values.append(["quotes", self.definition.quotes])
        hub = self.definition.hub
        if hub is not None and hub.columns is not None:
            values.append(["columns of the hub", hub.columns.model_dump(mode="json")])
        return values

    def read_files(self) -> list[FilePath]:
        """Return the files that hold the rows; none of a data set of the Hub."""
        files: list[FilePath] = []
        for place in self.places():
            if not place.startswith("hub:"):
                files += find_files(place).files
        return files

    def read(self, report: SourceReport) -> Iterator[LabelledRow]:
        """Iterate over the rows as a corpus has them, classes by the teacher's numbers.

        Args:
            report: Receives rows that are left out, and how many there are beside the published ones.

        Raises:
            CorpusError: as `load`.
        """
        kind = KINDS[self.definition.kind]
        number_of_class = self.classes or tuple(range(len(self.definition.classes)))
        content = self._read()
        report.merge(content.report)
        for row in content.rows:
            trained_row = kind.for_training(row, number_of_class)
            if trained_row is None:
                report.note("answer that its context does not contain, row left out", row.id)
            else:
                yield trained_row

    def _read(self) -> SplitContent:
        """Return the rows of the files, else of the split."""
        if self.files:
            return self._read_files()
        return self._splits.read(self.split)

    def _read_files(self, most: int | None = None) -> SplitContent:
        """Return the rows of the files that stand in place of the split's own.

        Args:
            most: Rows that are read; None for all.
        """
        # The user's files are taken to have the columns of the first file that the task's own training rows may be in.
        train_file: FileSource | None = None
        train_files = self.definition.files.get(self.definition.train, ())
        if train_files:
            train_file = train_files[0]
        columns = self.definition.columns
        if train_file is not None and train_file.columns is not None:
            columns = train_file.columns

        report = SourceReport()
        placed_rows = self._placed_rows(train_file, report)
        rows = read_labelled_rows(
            placed_rows,
            self.definition.task,
            SplitFacts(),
            columns,
            report,
            most=most,
            columns_of_recipe=self.columns_of_recipe,
        )
        if not rows:
            raise CorpusError(f"'{', '.join(self.files)}' holds no row.")
        return SplitContent(rows, [f"{self.title}: {line}" for line in report.lines()], report)

    def _placed_rows(self, train_file: FileSource | None, report: SourceReport) -> Iterator[PlacedRow]:
        """Yield the rows of the user's files as they are.

        Args:
            train_file: The file that the task itself is trained on; None without one.
            report: Receives what is left out.
        """
        # If the task's own file has no header, or holds rows of other splits too, the user's files are read like it.
        # Otherwise they may be of any kind that limbeck reads.
        layout_of_task: FileSource | None = None
        if train_file is not None and (train_file.header or train_file.only):
            layout_of_task = train_file
        of_words = KINDS[self.definition.kind].rows_of_words
        for file in self.files:
            if layout_of_task is not None:
                path = Path(file).expanduser()
                yield from read_split_file(path, layout_of_task, report, quotes=self.definition.quotes)
            else:
                yield from open_rows(file, self.layout).rows(report, of_words=of_words)
                check_whole(file, report)

    @property
    def _splits(self) -> Splits:
        return Splits(self.definition, beside=self.beside, data=self.data)
