"""`load_task`: the rows of a task from a folder or the Hub."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from limbeck.errors import CorpusError, suggestion
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.own_task import OwnTask, read_own_task
from limbeck.evaluation.tasks.registry import DEFINITIONS, is_own_task
from limbeck.evaluation.tasks.split_reader import LoadedSplit, SplitReader, name_some
from limbeck.evaluation.tasks.task import Task, TaskData

TRAIN = "train"
"""The key of the rows to train on, whichever split of whichever task they are."""


def load_task(
    name: str, *, data: Path | None, cache_dir: Path | None = None, splits: Collection[str] | None = None
) -> TaskData:
    """Return the rows of a task.

    Without `splits`, everything that the task trains on, selects on, scores and predicts is loaded as far as it is
    there; of what is not, a note is made. Where none of the scored splits is there, the second choice of the task is
    scored in their place (the development sets of XNLI and MLQA). The task of the result names what was loaded.

    Args:
        name: A key of `TASKS`, or the path of a YAML file that describes an own task.
        data: Folder with the task's files, in it or in its subfolders; None for the Hub. The files of an own task are
            looked for beside its YAML first.
        cache_dir: Where `datasets` keeps what it downloads.
        splits: Load these, all of which must be there: `"train"`, splits of the task, or `"other task:split"`.

    Raises:
        RecipeError: for an unknown task.
        CorpusError: for a missing or empty file, an unknown split, wrong columns, or a label outside the set.
    """
    if data is not None and not data.is_dir():
        raise CorpusError(f"The data folder '{data}' does not exist.")
    own = read_own_task(Path(name).expanduser()) if is_own_task(name) else None
    found = _Places(own.definition if own is not None else DEFINITIONS[name], own, data, cache_dir)
    missing: list[str] = []
    if splits is None:
        splits, missing = _what_is_there(found)
    loaded = {key: found.read(key) for key in splits}
    # The parts of a joint split are also read by themselves.
    notes = list(dict.fromkeys(note for split in loaded.values() for note in split.notes))
    if missing:
        notes.append(f"{found.definition.task.title}: not there: {name_some(missing)}")
    rows = {key: split.rows for key, split in loaded.items()}
    return TaskData(_narrowed(found.definition, rows), rows, tuple(notes))


@dataclass(frozen=True)
class _Places:
    """Where the splits of a task, and those of other tasks that it refers to, are."""

    definition: TaskDefinition
    own: OwnTask | None
    data: Path | None
    cache_dir: Path | None

    def has(self, key: str) -> bool:
        definition, split = self._locate(key)
        return self._reader(definition).has(definition, split)

    def read(self, key: str) -> LoadedSplit:
        definition, split = self._locate(key)
        return self._reader(definition).read(definition, split)

    def _locate(self, key: str) -> tuple[TaskDefinition, str]:
        definition = self.definition
        if key == TRAIN and definition.task.train is not None:
            key = definition.task.train
        other, colon, split = key.rpartition(":")
        if colon:
            definition = DEFINITIONS[other]
        if split not in definition.sources:
            raise CorpusError(f"{definition.task.title} has no split '{split}'.{suggestion(split, definition.sources)}")
        return definition, split

    def _reader(self, definition: TaskDefinition) -> SplitReader:
        folders = () if self.data is None else (self.data,)
        if self.own is not None and definition is self.own.definition:
            folders = () if self.own.on_hub else (self.own.folder, *folders)
        return SplitReader(folders, self.cache_dir)


def _what_is_there(places: _Places) -> tuple[list[str], list[str]]:
    """Return the keys of the splits that are there, and of those that are not."""
    definition = places.definition
    task = definition.task
    scored: Collection[str] = task.scored
    if not any(map(places.has, scored)):
        scored = [key for key in definition.second_choice if places.has(key)] or scored
    train = () if task.train is None else (TRAIN,)
    select = () if task.select is None else (task.select,)
    keys = list(dict.fromkeys((*train, *select, *scored, *task.predicted)))
    there = [key for key in keys if places.has(key)]
    if not there:
        places.read(keys[0])  # Raises, naming the files that it looked for.
    return there, [key for key in keys if key not in there]


def _narrowed(definition: TaskDefinition, rows: Mapping[str, object]) -> Task:
    """The task with the scored and predicted splits that were loaded."""
    task = definition.task
    first = [key for key in task.scored if key in rows] or [key for key in definition.second_choice if key in rows]
    # What else was asked for by name is meant to be scored: MLQA's pairs of two languages, say.
    labelled = [key for key in rows if key in task.splits and task.splits[key].labelled]
    more = [key for key in labelled if key not in (TRAIN, task.select, *first)]
    predicted = tuple(key for key in task.predicted if key in rows)
    return replace(task, scored=(*first, *more), predicted=predicted)
