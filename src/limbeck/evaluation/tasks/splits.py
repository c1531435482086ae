"""`Splits`, the splits of a task: where each of them lies, in a folder or on the Hub, and its rows.

A split is named by a *key*: its name, `"train"` for the split that the task is trained on, or `"other task:split"`. A
*joint* split is made of other splits, its parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from limbeck.core.blocks import counted
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.settings.parallel import ParallelSpec
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError, suggestion
from limbeck.evaluation.tasks import registry
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.retrieval_texts import put_texts, read_texts
from limbeck.evaluation.tasks.sources import HubPlace, PossibleFile, TextFile
from limbeck.evaluation.tasks.split_files import (
    SplitFile,
    find_file,
    find_saved_split,
    is_read_whole,
    read_labelled_rows,
    read_parallel_files,
    read_split_file,
    read_split_of_hub,
)
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import SplitFacts, Task

TRAIN = "train"
"""The key of the rows to train on, whichever split of whichever task they are."""
_SHOWN_NAMES = 6


@dataclass
class SplitContent:
    """The rows of a split, and what happened on the way to them.

    Attributes:
        rows: The rows.
        notes: Row counts beside the published ones, and rows that were left out or moved, for the user to read.
        report: The same as counts.
    """

    rows: list[LabelledRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    report: SourceReport = field(default_factory=SourceReport)


@dataclass(frozen=True)
class _Place:
    """Where a split is.

    Attributes:
        definition: The task of the split.
        split: Name of the split.
        folders: The folders that the split's file is looked for in; empty where the split is read from the Hub.
    """

    definition: TaskDefinition
    split: str
    folders: Sequence[Path]

    @property
    def task(self) -> Task:
        """The task of the split."""
        return self.definition.task

    @property
    def facts(self) -> SplitFacts:
        """The facts of the split."""
        return self.task.splits[self.split]

    @property
    def is_joint(self) -> bool:
        """Whether the split is made of other splits."""
        return self.split in self.definition.parts

    @property
    def is_on_hub(self) -> bool:
        """Whether the split is read from the Hub, since there are no folders with its file."""
        return not self.folders

    def find_file(self) -> SplitFile | None:
        """Return the file of the split, else the folder of the Hub's split that `save_to_disk` wrote; None without."""
        file = find_file(self.definition.paths(self.split), self.folders)
        hub = self.definition.on_hub(self.split)
        if file is None and hub is not None:
            return find_saved_split(hub, self.definition.folders, self.folders)
        return file

    def file(self) -> SplitFile:
        """Return the file of the split, and its layout.

        Raises:
            CorpusError: if it is not there.
        """
        file = self.find_file()
        if file is not None:
            return file
        files = self.definition.paths(self.split)
        return require_file(files, self.folders, f"the split '{self.split}' of {self.task.title}")

    def read_rows(self, file: SplitFile, report: SourceReport) -> Iterator[PlacedRow]:
        """Iterate over the rows of the split's file as they are; see `read_split_file`.

        Raises:
            CorpusError: if the file, or one of several that belong together, is not there or cannot be read as a whole.
        """
        parallel = file.source.parallel
        if parallel is None:
            of_words = KINDS[self.task.kind].rows_of_words
            return read_split_file(file.path, file.source, report, quotes=self.definition.quotes, of_words=of_words)
        return read_parallel_files(parallel, self.parallel_files(parallel), report)

    def parallel_files(self, parallel: ParallelSpec) -> list[Path]:
        """Return the files of parallel text.

        Raises:
            CorpusError: if one of them is not there.
        """
        # There may be a file of each language, or one of all: that one is sought once, in the name of the first.
        paths = []
        for language, name in zip(parallel.all_languages, parallel.places, strict=False):
            names = self.definition.paths_of_texts(TextFile(path=(name,)))
            title = f"the split '{self.split}' of {self.task.title} in '{language}'"
            paths.append(require_file(names, self.folders, title).path)
        return paths

    def text_files(self, file: SplitFile) -> Iterator[tuple[str, TextFile, SplitFile]]:
        """Yield the files of queries and documents that the rows of a file name by ids: key, layout and file.

        Raises:
            CorpusError: if one of them is not there.
        """
        for key, layout in self.definition.texts(file.source).items():
            names = self.definition.paths_of_texts(layout)
            yield key, layout, require_file(names, self.folders, f"the {key} of {self.task.title}")

    def check_files(self) -> None:
        """Refuse a split of which a file is not there.

        Raises:
            CorpusError: naming the files that were looked for.
        """
        file = self.file()
        if file.source.parallel is not None:
            self.parallel_files(file.source.parallel)
        for _ in self.text_files(file):
            pass

    def hub_place(self) -> HubPlace:
        """Return the data set of the split, and the split there.

        Raises:
            CorpusError: if there is none.
        """
        place = self.definition.on_hub(self.split)
        if place is None:
            raise CorpusError(
                f"{self.task.title} is not on the Hub: give a folder with its files (--data DIR, or corpus.data in a "
                "recipe: --set corpus.data=DIR)."
            )
        return place


@dataclass(frozen=True)
class Splits:
    """The splits of a task, and those of other tasks that it refers to, in folders or on the Hub.

    Args:
        definition: The task.
        beside: The folder of its description, where it is a user's.
        data: The folder that the user gave; None for the Hub.
    """

    definition: TaskDefinition
    beside: Path | None
    data: Path | None

    def has(self, key: str) -> bool:
        """Whether a split exists. Of the Hub it is only checked that the task's description names the split."""
        place = self._locate(key)
        if place.is_joint:
            return any(self.has(part) for part in self._parts(place))
        if place.is_on_hub:
            return place.definition.on_hub(place.split) is not None
        return place.find_file() is not None

    def check_files(self) -> None:
        """Refuse a task of the user's own whose description names a file that is not there.

        A built-in task may lack files: its description names those of a published data set, of which a user may have
        only some. A user's own description names the user's files, so a missing one is a mistake.

        Raises:
            CorpusError: naming the files that were looked for.
        """
        if self.beside is None:
            return
        definition = self.definition
        folders = self._folders_of_own_task(self.beside, [] if self.data is None else [self.data])
        if not folders:
            # All splits are on the Hub.
            return

        # A second choice is scored where the splits to score are missing, so either may be.
        may_be_missing: set[str] = set()
        if definition.second_choice:
            may_be_missing = {*definition.task.scored, *definition.second_choice}
        for split in definition.files:
            if split not in may_be_missing:
                _Place(definition, split, folders).check_files()

    def keys_to_read(self, key: str) -> list[str]:
        """Return the keys of the splits that a split is read from: itself, or the parts of a joint split that exist."""
        place = self._locate(key)
        if not place.is_joint:
            return [key]
        return [part for part in self._parts(place) if self.has(part)]

    def place(self, key: str) -> str:
        """Return the file of a split that is not joint, or its data set as a corpus names it.

        Raises:
            CorpusError: if it is not there.
        """
        place = self._locate(key)
        if place.is_on_hub:
            return place.hub_place().address
        return str(place.file().path)

    def check(self, key: str) -> None:
        """Refuse the file of a split if its first row does not fit the task.

        Args:
            key: A split that is not joint.

        Raises:
            CorpusError: if the file is missing, or its first row does not fit.
        """
        # Reading the first row raises an error if the row does not fit.
        self.first_rows(key, most=1)

    def first_rows(self, key: str, most: int) -> list[LabelledRow]:
        """Return the first rows of a split.

        Nothing is read on the Hub, nor of a file whose first row is known only after all of it was read.

        Args:
            key: A split that is not joint.
            most: Rows of the file that are read.

        Raises:
            CorpusError: if the file is missing, or one of these rows does not fit.
        """
        place = self._locate(key)
        if place.is_on_hub:
            return []
        file = place.file()
        if is_read_whole(file.path):
            return []
        rows = place.read_rows(file, SourceReport())
        columns = file.source.columns or place.definition.columns
        return read_labelled_rows(rows, place.task, place.facts, columns, SourceReport(), most=most)

    def read(self, key: str) -> SplitContent:
        """Return the rows of a split.

        Args:
            key: A split of the task, `"train"`, or `"other task:split"`.

        Raises:
            CorpusError: if it is not there, cannot be read, or has no rows.
        """
        place = self._locate(key)
        if place.is_joint:
            return self._read_parts(place)
        if place.is_on_hub:
            return _read_hub(place)
        return _read_file(place)

    def _read_parts(self, place: _Place) -> SplitContent:
        """Return the rows of a joint split: those of its parts that are there."""
        parts = self._parts(place)
        parts_there = [part for part in parts if self.has(part)]
        if not parts_there:
            raise CorpusError(
                f"None of the splits {name_some(parts)} of {place.task.title} was found, so there is nothing to "
                "join; give a folder with their files (--data DIR, or corpus.data in a recipe: --set corpus.data=DIR)."
            )
        joint = SplitContent()
        for part in parts_there:
            content = self.read(part)
            joint.rows += content.rows
            joint.notes += content.notes
            joint.report.merge(content.report)
        if len(parts_there) < len(parts):
            joint.notes.append(
                f"{place.task.title} {place.split}: {registry.ASSEMBLED} {len(parts_there)} of its {len(parts)} parts"
            )
        return joint

    def _parts(self, place: _Place) -> list[str]:
        """Return the keys of the parts of a joint split."""
        parts = place.definition.parts[place.split]
        if place.definition is self.definition:
            return list(parts)
        return [f"{place.definition.name}:{part}" for part in parts]

    def _locate(self, key: str) -> _Place:
        """Return where the split of a key is.

        Raises:
            CorpusError: if the task has no such split.
        """
        # `"train"` stands for the split that the task is trained on, which may have another name, or be another task's.
        train_split = self.definition.task.train
        if key == TRAIN and train_split is not None:
            key = train_split
        other_task, _, split = key.rpartition(":")
        definition = self.definition
        folders = [] if self.data is None else [self.data]
        if other_task:
            # Other tasks are built in, and their files are in the data folder alone.
            definition = registry.DEFINITIONS[other_task]
        elif self.beside is not None:
            folders = self._folders_of_own_task(self.beside, folders)
        if split not in definition.split_names:
            raise CorpusError(
                f"{definition.task.title} has no split '{split}'.{suggestion(split, definition.split_names)}"
            )
        return _Place(definition, split, folders)

    def _folders_of_own_task(self, beside: Path, folders: list[Path]) -> list[Path]:
        """Return the folders of a user's task, that of its description first; empty if its splits are on the Hub.

        Args:
            beside: The folder of its description.
            folders: The data folder, or nothing.
        """
        definition = self.definition
        splits_with_rows = [name for name in definition.split_names if name not in definition.parts]
        is_on_hub = all(definition.on_hub(name) is not None for name in splits_with_rows)
        has_files = any(definition.files.get(name) for name in splits_with_rows)
        # A task may be described both as files and on the Hub. The files are read if the user gave a folder for them.
        prefers_files = has_files and bool(folders)
        if is_on_hub and not prefers_files:
            return []
        return [beside, *folders]


def require_file(files: Sequence[PossibleFile], folders: Sequence[Path], title: str) -> SplitFile:
    """Return the first file that is there, see `find_file`.

    Args:
        files: Names of the file.
        folders: The folders that are searched, with their subfolders.
        title: The file in words, for the message.

    Raises:
        CorpusError: naming what was looked for, if there is none.
    """
    file = find_file(files, folders)
    if file is None:
        names = []
        for possible in files:
            # A name with `*` is read only where one file alone matches it.
            hint = " (one only)" if "*" in possible.name else ""
            names.append(f"{possible.name}{hint}")
        where = " and ".join(f"'{folder}'" for folder in folders)
        raise CorpusError(
            f"No file of {title} in {where} or a subfolder; give a folder with one of these files: {', '.join(names)}."
        )
    return file


def name_some(names: Collection[str]) -> str:
    """Return the first few names, and how many more there are."""
    shown = list(names)[:_SHOWN_NAMES]
    text = ", ".join(shown)
    if len(names) > len(shown):
        text += f" and {len(names) - len(shown)} more"
    return text


def _read_file(place: _Place) -> SplitContent:
    """Return the rows of a split's file; those of a retrieval get the texts that they name by their ids."""
    definition = place.definition
    task = place.task
    report = SourceReport()
    file = place.file()
    placed_rows = place.read_rows(file, report)
    columns = file.source.columns or definition.columns
    rows = read_labelled_rows(placed_rows, task, place.facts, columns, report)

    # Files of queries and documents; what is left out of them is counted with the rows.
    texts: dict[str, dict[str, str]] = {}
    for key, layout, text_file in place.text_files(file):
        texts[key] = read_texts(text_file, layout, report)

    origin = f"'{file.path}'"
    content = _counted(place, rows, report, published=place.facts.published_rows, origin=origin)
    if definition.facts.has_text_files:
        queries = texts.get("queries")
        documents = texts.get("documents")
        content.rows = put_texts(content.rows, queries=queries, documents=documents, origin=origin)
        content.notes.append(_sizes_of_retrieval(place, content.rows))
    return content


def _read_hub(place: _Place) -> SplitContent:
    """Return the rows of a split of a Hub data set, which may have another number of rows than was published."""
    definition = place.definition
    report = SourceReport()
    hub_place = place.hub_place()
    data_set = hub_place.data_set
    columns = data_set.columns or definition.columns
    rows = read_labelled_rows(read_split_of_hub(hub_place), place.task, place.facts, columns, report)

    published = data_set.rows.get(place.split, place.facts.published_rows)
    content = _counted(place, rows, report, published=published, origin=f"The Hub's '{data_set.name}'")
    if definition.facts.has_text_files:
        content.notes.append(_sizes_of_retrieval(place, content.rows))
    return content


def _counted(
    place: _Place, rows: list[LabelledRow], report: SourceReport, *, published: int | None, origin: str
) -> SplitContent:
    """Return the content of a split, with notes that count its rows beside the published ones.

    Args:
        place: The split.
        rows: The rows of the split.
        report: What was left out of them or moved.
        published: The number of published rows; None where it is not known.
        origin: The source, for messages.

    Raises:
        CorpusError: for a split without rows.
    """
    title = place.task.title
    lines_of_report = report.lines()
    if not rows:
        reason = ""
        if lines_of_report:
            reason = f": {'; '.join(lines_of_report)}"
        raise CorpusError(
            f"{origin} holds no row of the split '{place.split}' of {title}{reason}; give a file that has rows."
        )

    # The number of rows is noted first, and only if it is not the published one.
    lines: list[str] = []
    if published is None:
        lines.append(KINDS[place.task.kind].size(rows))
    elif published != len(rows):
        lines.append(f"{counted(len(rows), 'row')} ({registry.PUBLISHED} {published:,})")
        report.note(f"row of {title} {place.split} ({registry.PUBLISHED} {published:,})", "", len(rows))
    lines += lines_of_report
    return SplitContent(rows, [f"{title} {place.split}: {line}" for line in lines], report)


def _sizes_of_retrieval(place: _Place, rows: Sequence[LabelledRow]) -> str:
    """Return the note on the numbers of queries and documents of a split."""
    queries = set()
    documents = set()
    for row in rows:
        query, document = row.keys
        documents.add(document)
        # A document that belongs to no query is in a row without a query's text.
        if row.text:
            queries.add(query)
    sizes = f"{counted(len(queries), 'query')}, {counted(len(documents), 'document')}"
    return f"{place.task.title} {place.split}: {sizes}"
