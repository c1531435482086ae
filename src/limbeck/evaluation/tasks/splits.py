"""Rows of tasks: the files of a folder or a Hub data set, each split counted against its published rows."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from limbeck.core.blocks import counted
from limbeck.corpus.files import file_kinds
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError, suggestion
from limbeck.evaluation.tasks import registry
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.sources import FileSource, TextFile
from limbeck.evaluation.tasks.split_files import find_file, read_split_file, read_split_of_hub
from limbeck.kinds.columns import Columns
from limbeck.kinds.registry import KINDS
from limbeck.kinds.row_values import text_of
from limbeck.kinds.split_rows import SplitRows, require_columns
from limbeck.kinds.task import SplitFacts, Task, TaskData

_SHOWN_NAMES = 6
TRAIN = "train"
"""The key of the rows to train on, whichever split of whichever task they are."""
READ_WHOLE = ".json"
"""Ending of files whose first row is not known before they are read as a whole."""


def read_task_rows(
    placed: Iterable[PlacedRow], task: Task, facts: SplitFacts, columns: Columns, report: SourceReport
) -> list[LabelledRow]:
    """Return the rows of a split, in the order of the source.

    Args:
        placed: The source's rows.
        task: Decides the columns that a row must have.
        facts: Of the split: whether it is labelled, and its language.
        columns: Where text, label and answers stand.
        report: Receives the rows that are left out and the answers that are moved.

    Raises:
        CorpusError: if a row lacks a column or a label, has a label that is none of the task's, or an id of another.
    """
    kind = KINDS[task.kind]
    source = SplitRows(task, facts, columns, report)
    kind.check_source(source)
    rows: list[LabelledRow] = []
    for row in placed:
        source.count = len(rows)
        rows += kind.read(row, source)
    return rows


def name_some(names: Collection[str]) -> str:
    """Return the first few names, and how many more there are."""
    shown = list(names)[:_SHOWN_NAMES]
    more = len(names) - len(shown)
    text = ", ".join(shown)
    if more:
        text += f" and {more} more"
    return text


def load_task(
    name: str, *, data: Path | None, splits: Collection[str] | None = None, training: bool = True
) -> TaskData:
    """Return the rows of a task.

    Without `splits`, all splits to train on, to select on, to score and to predict are loaded that are there; missing
    ones are noted. Where none of the scored splits is there, the second choice of the task is
    scored in their place (the development sets of XNLI and MLQA). The task of the result names the
    splits that were loaded.

    Args:
        name: A key of `TASKS`, or the path of a YAML file that describes an own task.
        data: Folder with the task's files, in it or in its subfolders; None for the Hub. The files of an own task are
            looked for beside its YAML first, unless it is on the Hub and there is no data folder.
        splits: Load these, all of which must be there: `"train"`, splits of the task, or `"other task:split"`.
        training: Load the rows to train and to select on too, and not only those that are scored or predicted.

    Raises:
        RecipeError: for an unknown task.
        CorpusError: for a missing or empty file, an unknown split, wrong columns, or a label outside the set.
    """
    places = _splits_of(name, data)
    missing: list[str] = []
    if splits is None:
        splits, missing = _what_is_there(places, training=training)
    # The parts of a joint split are also read by themselves.
    notes: dict[str, None] = {}
    rows = {key: places.read(key, notes) for key in splits}
    if missing:
        title = places.definition.task.title
        files = "files" if len(missing) > 1 else "file"
        notes[f"{title}: no {name_some(missing)} {files} found"] = None
    return TaskData(_narrowed(places.definition, rows), rows, tuple(notes))


def check_scored(name: str, *, data: Path | None) -> None:
    """Check that a task has rows to score, as `load_task` without training loads them.

    File presence and first rows are checked; the splits are not read.

    Args:
        name: As for `load_task`.
        data: As for `load_task`.

    Raises:
        RecipeError: for an unknown task.
        CorpusError: for a missing file, wrong columns, or a label outside the set, of the first row of each split.
    """
    places = _splits_of(name, data)
    there, _ = _what_is_there(places, training=False)
    task = _narrowed(places.definition, dict.fromkeys(there))
    if not task.scored:
        raise CorpusError(f"{task.title} has no labelled split there: give a folder with its development rows.")
    for split in task.scored:
        for key in places.whole(split):
            places.check(key)


def _splits_of(name: str, data: Path | None) -> Splits:
    """Return the splits of a task; the arguments are those of `load_task`."""
    registry.check_data(data)
    return Splits(registry.find_task(name), registry.folder_of_task(name), data)


@dataclass(frozen=True)
class _Place:
    """Where a split is.

    Attributes:
        definition: Whose split it is.
        split: Its name.
        folders: The folders that it is looked for in; none for the Hub.
    """

    definition: TaskDefinition
    split: str
    folders: Sequence[Path]

    @property
    def title(self) -> str:
        """Title of the task."""
        return self.definition.task.title

    def file(self) -> tuple[Path, FileSource]:
        """Return the file of the split, and its layout.

        Raises:
            CorpusError: if it is not there.
        """
        names = self.definition.paths(self.split)
        return _find(names, self.folders, f"the split '{self.split}' of {self.title}")


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
        """Whether a split is there: of the Hub, whether it is known to be."""
        place = self._locate(key)
        definition = place.definition
        if place.split in definition.parts:
            return any(map(self.has, self._parts(place)))
        if place.folders:
            return find_file(definition.paths(place.split), place.folders) is not None
        return definition.on_hub(place.split) is not None

    def whole(self, key: str) -> list[str]:
        """Return the keys of the splits that a split is made of: of a joint one its parts that are there."""
        place = self._locate(key)
        if place.split not in place.definition.parts:
            return [key]
        return list(filter(self.has, self._parts(place)))

    def place(self, key: str) -> str:
        """Return the file of a whole split, or its data set as a corpus names it.

        Raises:
            CorpusError: if it is not there.
        """
        place = self._locate(key)
        if place.folders:
            return str(place.file()[0])
        on_hub = place.definition.on_hub(place.split)
        if on_hub is None:
            raise CorpusError(f"{place.title} is not on the Hub: give a folder with its files.")
        source, split = on_hub
        config = f":{split.config}" if split.config else ""
        revision = f"#{source.revision}" if source.revision else ""
        return f"hub:{source.name}{config}@{split.split}{revision}"

    def check(self, key: str) -> None:
        """Refuse the file of a whole split whose first row is none of the task, unless it is read as a whole."""
        place = self._locate(key)
        if not place.folders:
            return
        path, source = place.file()
        if file_kinds.suffix_of(path) == READ_WHOLE:
            return
        task = place.definition.task
        of_words = KINDS[task.kind].rows_of_words
        first = itertools.islice(read_split_file(path, source, SourceReport(), of_words=of_words), 1)
        columns = source.columns or place.definition.columns
        read_task_rows(first, task, task.splits[place.split], columns, SourceReport())

    def read(self, key: str, notes: dict[str, None], counts: SourceReport | None = None) -> list[LabelledRow]:
        """Return the rows of a split.

        Args:
            key: A split of the task, `"train"`, or `"other task:split"`.
            notes: Receives row counts beside the published ones, and rows that were left out, as its keys.
            counts: Receives the same as counts.

        Raises:
            CorpusError: if it is not there, cannot be read, or has no rows.
        """
        place = self._locate(key)
        definition = place.definition
        task = definition.task
        split = place.split
        if split in definition.parts:
            return self._read_parts(place, notes, counts)

        # Rows as the source has them.
        facts = task.splits[split]
        report = SourceReport()
        published = facts.published_rows
        file: FileSource | None = None
        if place.folders:
            path, file = place.file()
            placed = read_split_file(path, file, report, of_words=KINDS[task.kind].rows_of_words)
            columns = file.columns
            origin = f"'{path}'"
        else:
            on_hub = definition.on_hub(split)
            if on_hub is None:
                raise CorpusError(f"{task.title} is not on the Hub: give a folder with its files.")
            hub, _ = on_hub
            placed = read_split_of_hub(*on_hub)
            columns = hub.columns
            origin = f"The Hub's '{hub.name}'"
            published = hub.rows.get(split, published)

        rows = read_task_rows(placed, task, facts, columns or definition.columns, report)
        texts = {}
        for texts_key, text_file in definition.texts(file).items():
            texts[texts_key] = _read_texts(place, texts_key, text_file, report)
        if not rows:
            reason = f": {'; '.join(report.lines())}" if report.lines() else ""
            raise CorpusError(f"{origin} holds no row of the split '{split}' of {task.title}{reason}.")

        # Counts beside the published ones.
        lines = report.lines()
        if published != len(rows):
            beside = "" if published is None else f" ({registry.PUBLISHED} {published:,})"
            lines = [counted(len(rows), "row") + beside, *lines]
        for line in lines:
            notes[f"{task.title} {split}: {line}"] = None
        if counts is not None:
            counts.merge(report)
            if published not in (None, len(rows)):
                counts.note(f"row of {task.title} {split}, of which {published:,} are published", origin, len(rows))

        if definition.facts.has_text_files:
            rows = _put_texts(rows, texts, origin)
            queries = {row.keys[0] for row in rows if row.text}
            documents = {row.keys[1] for row in rows}
            sizes = f"{counted(len(queries), 'query')}, {counted(len(documents), 'document')}"
            notes[f"{task.title} {split}: {sizes}"] = None
        return rows

    def _read_parts(self, place: _Place, notes: dict[str, None], counts: SourceReport | None) -> list[LabelledRow]:
        """Return the rows of a joint split: those of its parts that are there."""
        parts = self._parts(place)
        parts_there = [part for part in parts if self.has(part)]
        if not parts_there:
            raise CorpusError(f"None of the splits {name_some(parts)} of {place.title} is there.")
        rows: list[LabelledRow] = []
        for part in parts_there:
            rows += self.read(part, notes, counts)
        if len(parts_there) < len(parts):
            notes[f"{place.title} {place.split}: assembled from {len(parts_there)} of its {len(parts)} parts"] = None
        return rows

    def _parts(self, place: _Place) -> list[str]:
        """Return the keys of the parts of a joint split."""
        prefix = "" if place.definition is self.definition else f"{place.definition.name}:"
        return [f"{prefix}{part}" for part in place.definition.parts[place.split]]

    def _locate(self, key: str) -> _Place:
        """Return where the split of a key is.

        Raises:
            CorpusError: if the task has no such split.
        """
        definition = self.definition
        if key == TRAIN and definition.task.train is not None:
            key = definition.task.train
        task, colon, split = key.rpartition(":")
        folders = [] if self.data is None else [self.data]
        if colon:
            definition = registry.DEFINITIONS[task]
        elif self.beside is not None:
            folders = self._own_folders(folders)
        if split not in definition.split_names:
            raise CorpusError(
                f"{definition.task.title} has no split '{split}'.{suggestion(split, definition.split_names)}"
            )
        return _Place(definition, split, folders)

    def _own_folders(self, folders: list[Path]) -> list[Path]:
        """Return the folders of a user's task: that of its description first, unless its splits are on the Hub."""
        assert self.beside is not None
        definition = self.definition
        whole = [name for name in definition.split_names if name not in definition.parts]
        is_on_hub = all(map(definition.on_hub, whole))
        has_files = any(definition.files.get(name) for name in whole)
        if is_on_hub and not (has_files and folders):
            return []
        return [self.beside, *folders]


def _find(names: Sequence[tuple[str, FileSource]], folders: Sequence[Path], what: str) -> tuple[Path, FileSource]:
    """Return the first file that is there, see `find_file`.

    Args:
        names: Of the file.
        folders: Where it is looked for.
        what: The file in words, for the message.

    Raises:
        CorpusError: naming what was looked for, if there is none.
    """
    place = find_file(names, folders)
    if place is None:
        wanted = ", ".join(f"{name} (one only)" if "*" in name else name for name, _ in names)
        where = " and ".join(f"'{folder}'" for folder in folders)
        raise CorpusError(f"No file of {what} in {where} or a subfolder: looked for {wanted}.")
    return place


def _read_texts(place: _Place, key: str, file: TextFile, report: SourceReport) -> dict[str, str]:
    """Return the texts of queries or documents, by their ids.

    Args:
        place: Of the split that names them.
        key: `"queries"` or `"documents"`.
        file: Their file, as the description names it.
        report: Receives lines that are left out.
    """
    names = place.definition.paths_of_texts(file)
    path, source = _find(names, place.folders, f"the {key} of {place.title}")
    needed = [file.id, *file.text[-1:]]
    texts: dict[str, str] = {}
    for row in read_split_file(path, source, report):
        require_columns(row, needed)
        parts = [text_of(row, column).strip() for column in file.text if row.values.get(column) is not None]
        texts[str(row.values[file.id])] = " ".join(part for part in parts if part)
    return texts


def _put_texts(rows: Sequence[LabelledRow], texts: Mapping[str, Mapping[str, str]], origin: str) -> list[LabelledRow]:
    """Put texts in the places of their ids, and add the documents that no row names.

    Args:
        rows: With ids as their texts.
        texts: Of `"queries"`, `"documents"` or both, by their ids.
        origin: The source, for messages.

    Raises:
        CorpusError: for an id of no text, or an empty query.
    """
    if not texts:
        return list(rows)
    queries = texts.get("queries")
    documents = texts.get("documents")

    filled = []
    for row in rows:
        query_id = row.text if row.text and queries is not None else ""
        document_id = row.pair or "" if documents is not None else ""
        query = row.text
        if query_id and queries is not None:
            query = queries.get(query_id, "")  # A document may be empty, a query not.
            if not query:
                raise _no_text(origin, query_id, "queries")
        document = row.pair or ""
        if document_id and documents is not None:
            if document_id not in documents:
                raise _no_text(origin, document_id, "documents")
            document = documents[document_id]
        filled.append(replace(row, text=query, pair=document, ids=(query_id, document_id)))

    named = {row.keys[1] for row in filled}
    for document_id, text in (documents or {}).items():
        if document_id not in named:
            filled.append(LabelledRow(document_id, "", text, 0.0, ids=("", document_id)))
    return filled


def _no_text(origin: str, named: str, key: str) -> CorpusError:
    return CorpusError(f"{origin} names '{named[:80]}', for which the file of {key} has no text.")


def _what_is_there(places: Splits, *, training: bool) -> tuple[list[str], list[str]]:
    """Return the keys of the splits that are there, and of those that are not.

    Args:
        places: Of the task.
        training: Whether splits to train and to select on are needed too.
    """
    definition = places.definition
    task = definition.task
    scored: Sequence[str] = task.scored
    if not any(map(places.has, scored)):
        scored = [key for key in definition.second_choice if places.has(key)] or scored
    keys: dict[str, None] = {}
    if training and task.train:
        keys[TRAIN] = None
    if training and task.select:
        keys[task.select] = None
    keys |= dict.fromkeys([*scored, *task.predicted])

    there = [key for key in keys if places.has(key)]
    if not there:
        if definition.second_choice and not definition.is_trained and places.data is not None:
            names = [name for key in (*keys, *definition.second_choice) for name in definition.paths(key)]
            _find(names, [places.data], f"the splits of {task.title}")
        places.read(next(iter(keys)), {})  # Raises, naming the files that it looked for.
    return there, [key for key in keys if key not in there]


def _narrowed(definition: TaskDefinition, rows: Mapping[str, object]) -> Task:
    """Return the task with the scored and predicted splits that were loaded.

    Args:
        definition: The task.
        rows: By the keys of the splits that were loaded.
    """
    task = definition.task
    first = [key for key in task.scored if key in rows] or [key for key in definition.second_choice if key in rows]
    # Other splits named in the request are scored too, such as MLQA's pairs of two languages.
    labelled = [key for key in rows if key in task.splits and task.splits[key].labelled]
    more = [key for key in labelled if key not in (TRAIN, task.select, *first)]
    predicted = tuple(key for key in task.predicted if key in rows)
    return replace(task, scored=(*first, *more), predicted=predicted)
