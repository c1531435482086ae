"""The rows of a task for an evaluation: of all its splits that exist, or of those that are asked for.

A task has splits to train on, to select settings on, to *score* (labelled) and to *predict* (unlabelled, for
leaderboards). A split is named by a *key*: its name, `"train"` for the split to train on, or `"other task:split"`. A
task's description may name a *second choice*: splits that are scored where none of the usual ones has a file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from limbeck.errors import CorpusError
from limbeck.evaluation.tasks import registry
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.evaluation.tasks.sources import PossibleFile
from limbeck.evaluation.tasks.splits import TRAIN, Splits, name_some, require_file
from limbeck.kinds.task import Task, TaskData

_MISSING_FILES = re.compile(r"(?<=^no ).+ files?(?= found$)")
"""The changing part of a note on files that were not found: `test and dev files` in `no test and dev files found`."""


def load_task(
    name: str, *, data: Path | None, splits: Collection[str] | None = None, training: bool = True
) -> TaskData:
    """Return the rows of a task.

    Without `splits`, all splits to train on, to select on, to score and to predict are loaded that are there; missing
    ones of a built-in task are noted. All files that an own task names must be there. Where none of the scored splits
    is there, the second choice of the task is scored in their place (the development sets of XNLI and MLQA). The task
    of the result names the splits that were loaded.

    Args:
        name: A key of `TASKS`, or the path of a YAML file that describes an own task.
        data: Folder with the task's files, in it or in its subfolders; None for the Hub. The files of an own task are
            looked for beside its YAML first, unless it is on the Hub and there is no data folder.
        splits: Load these, all of which must be there: `"train"`, splits of the task, or `"other task:split"`.
        training: Load the rows to train and to select on too, and not only those that are scored or predicted. Without
            it, nothing is loaded of a task that has only rows to train on.

    Raises:
        RecipeError: for an unknown task.
        CorpusError: for a missing or empty file, an unknown split, wrong columns, or a label outside the set.
    """
    splits_of_task = _splits_of(name, data)
    definition = splits_of_task.definition
    if splits is None:
        presence = _look_for_splits(splits_of_task, training=training)
    else:
        presence = _Presence(present=splits, missing=())

    rows_by_key = {}
    notes: list[str] = []
    for key in presence.present:
        content = splits_of_task.read(key)
        rows_by_key[key] = content.rows
        notes += content.notes
    if presence.missing:
        notes.append(f"{definition.task.title}: {_describe_missing_files(presence.missing)}")
    # A split that joins other splits repeats the notes of these where they are loaded too.
    distinct_notes = tuple(dict.fromkeys(notes))
    return TaskData(_narrowed(definition, rows_by_key), rows_by_key, distinct_notes)


def _describe_missing_files(splits: Collection[str]) -> str:
    """Write the text of a note on splits without a file; `without_missing_files` knows its form."""
    files = "files" if len(splits) > 1 else "file"
    return f"no {name_some(splits)} {files} found"


def without_missing_files(text: str) -> str:
    """Remove the names of missing files from the text of a note, so that notes on different files are equal.

    The text of any other note stays as it is.
    """
    return _MISSING_FILES.sub("", text)


def check_scored(name: str, *, data: Path | None) -> None:
    """Check that a task has rows to score, as `load_task` with `training=False` loads them.

    The presence of files and the first row of each split are checked; the other rows are not read.

    Args:
        name: As for `load_task`.
        data: As for `load_task`.

    Raises:
        RecipeError: for an unknown task.
        CorpusError: for a missing file, wrong columns, or a label outside the set, of the first row of each split.
    """
    splits_of_task = _splits_of(name, data)
    presence = _look_for_splits(splits_of_task, training=False)
    task = _narrowed(splits_of_task.definition, presence.present)
    if not task.scored:
        raise CorpusError(
            f"{task.title} has no labelled split to score: give a folder with its development rows as --data."
        )
    for split in task.scored:
        for key in splits_of_task.keys_to_read(split):
            splits_of_task.check(key)


def _splits_of(name: str, data: Path | None) -> Splits:
    """Return the splits of a task; the arguments are those of `load_task`."""
    registry.check_data(data)
    return Splits(registry.find_task(name), beside=registry.folder_of_task(name), data=data)


@dataclass(frozen=True)
class _Presence:
    """The keys of the splits that an evaluation needs: those that have a file or a place on the Hub, and the others."""

    present: Collection[str]
    missing: Collection[str]


def _look_for_splits(splits_of_task: Splits, *, training: bool) -> _Presence:
    """Look for the splits that an evaluation needs.

    Args:
        splits_of_task: The splits.
        training: Whether splits to train and to select on are needed too.

    Raises:
        CorpusError: if none of them is there, or a task of the user's own names a file that is not there.
    """
    splits_of_task.check_files()
    definition = splits_of_task.definition
    task = definition.task
    scored: Sequence[str] = task.scored
    has_scored = any(splits_of_task.has(key) for key in scored)
    if not has_scored:
        second_choice = [key for key in definition.second_choice if splits_of_task.has(key)]
        if second_choice:
            scored = second_choice
    keys: list[str] = []
    if training and task.train:
        keys.append(TRAIN)
    if training and task.select:
        keys.append(task.select)
    keys += [*scored, *task.predicted]
    # A split may be there to select on and to be scored.
    keys = list(dict.fromkeys(keys))

    present = [key for key in keys if splits_of_task.has(key)]
    # A task that has only rows to train on needs no splits where nothing is trained. Callers say that it has no scores.
    if keys and not present:
        _refuse_missing(splits_of_task, keys)
    return _Presence(present, missing=[key for key in keys if key not in present])


def _refuse_missing(splits_of_task: Splits, keys: Sequence[str]) -> None:
    """Refuse a task of which no split is there, with the names of the files that were looked for.

    Raises:
        CorpusError: always.
    """
    definition = splits_of_task.definition
    any_split_is_enough = not definition.is_trained and bool(definition.second_choice)
    if any_split_is_enough and splits_of_task.data is not None:
        # The error of `require_file` names the files of all splits that could have been scored.
        files: list[PossibleFile] = []
        for key in (*keys, *definition.second_choice):
            files += definition.paths(key)
        require_file(files, [splits_of_task.data], f"the splits of {definition.task.title}")
    # The error of reading a split that is not there names the files of that split.
    splits_of_task.read(keys[0])


def _narrowed(definition: TaskDefinition, keys: Collection[str]) -> Task:
    """Return a task with only those scored and predicted splits that were loaded.

    Args:
        definition: The task.
        keys: Keys of the splits that were loaded.
    """
    task = definition.task
    scored = [key for key in task.scored if key in keys]
    if not scored:
        scored = [key for key in definition.second_choice if key in keys]
    # A user may ask for further splits by name, such as MLQA's pairs of two languages: labelled ones are scored too.
    for key in keys:
        # `"train"` and `"other task:split"` are keys of no split of this task, unless one is called so.
        is_labelled = key in task.splits and task.splits[key].labelled
        is_trained_or_selected_on = key in (TRAIN, task.select)
        if is_labelled and not is_trained_or_selected_on and key not in scored:
            scored.append(key)
    predicted = tuple(key for key in task.predicted if key in keys)
    return replace(task, scored=tuple(scored), predicted=predicted)
