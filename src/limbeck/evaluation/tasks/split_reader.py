"""`SplitReader`: the rows of one split, counted against what is published."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from limbeck.corpus.documents import SourceReport
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.definition import SplitSource, TaskDefinition
from limbeck.evaluation.tasks.files import find_file, read_split_file
from limbeck.evaluation.tasks.hub import read_split_of_hub
from limbeck.evaluation.tasks.rows import read_task_rows
from limbeck.evaluation.tasks.task import SplitFacts, Task, TaskRow

_SHOWN_NAMES = 6


@dataclass(frozen=True)
class LoadedSplit:
    """Rows, and what there is to say about them."""

    rows: list[TaskRow]
    notes: list[str]


@dataclass(frozen=True)
class SplitReader:
    """Reads splits from folders, or from the Hub.

    Args:
        folders: Looked through in turn; none for the Hub.
        cache_dir: Where `datasets` keeps what it downloads.
    """

    folders: tuple[Path, ...]
    cache_dir: Path | None = None

    def has(self, definition: TaskDefinition, split: str) -> bool:
        """Whether a split is there: of the Hub, whether it is known to be."""
        source = definition.sources[split]
        if source.parts:
            return any(self.has(definition, part) for part in source.parts)
        return find_file(source.files, self.folders) is not None if self.folders else source.hub is not None

    def read(self, definition: TaskDefinition, split: str) -> LoadedSplit:
        """Return the rows of a split.

        Args:
            definition: The task and its sources.
            split: One of its splits.

        Raises:
            CorpusError: if it is not there, cannot be read, or has no rows.
        """
        source, task, facts = definition.sources[split], definition.task, definition.task.splits[split]
        if source.parts:
            return self._read_parts(definition, split)
        return (self._read_file if self.folders else self._read_hub)(task, split, facts, source)

    def _read_hub(self, task: Task, split: str, facts: SplitFacts, source: SplitSource) -> LoadedSplit:
        if source.hub is None:
            raise CorpusError(f"{task.title} is not on the Hub: give a folder with its files.")
        report = SourceReport()
        placed = read_split_of_hub(source.hub, self.cache_dir)
        rows = read_task_rows(placed, task, facts, source.hub.columns, report)
        published = source.hub.published_rows or facts.published_rows
        return _counted(task, split, rows, published, report, f"The Hub's '{source.hub.name}'")

    def _read_file(self, task: Task, split: str, facts: SplitFacts, source: SplitSource) -> LoadedSplit:
        found = find_file(source.files, self.folders)
        if found is None:
            wanted = ", ".join(file.path for file in source.files)
            folders = " and ".join(f"'{folder}'" for folder in self.folders)
            raise CorpusError(
                f"No file of the split '{split}' of {task.title} in {folders} or a subfolder: looked for {wanted}."
            )
        path, file = found
        report = SourceReport()
        rows = read_task_rows(read_split_file(path, file, report), task, facts, file.columns, report)
        return _counted(task, split, rows, facts.published_rows, report, f"'{path}'")

    def _read_parts(self, definition: TaskDefinition, split: str) -> LoadedSplit:
        title, parts = definition.task.title, definition.sources[split].parts
        there = [part for part in parts if self.has(definition, part)]
        if not there:
            raise CorpusError(f"None of the splits {name_some(parts)} of {title} is there.")
        read = [self.read(definition, part) for part in there]
        notes = [note for part in read for note in part.notes]
        if len(there) < len(parts):
            notes.append(f"{title} {split}: made of {len(there)} of its {len(parts)} parts")
        return LoadedSplit([row for part in read for row in part.rows], notes)


def name_some(names: Collection[str]) -> str:
    """Return the first few names, and how many more there are."""
    shown = list(names)[:_SHOWN_NAMES]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _counted(
    task: Task, split: str, rows: list[TaskRow], published: int | None, report: SourceReport, origin: str
) -> LoadedSplit:
    if not rows:
        why = f": {'; '.join(report.lines())}" if report.lines() else ""
        raise CorpusError(f"{origin} holds no row of the split '{split}' of {task.title}{why}.")
    name, count = f"{task.title} {split}", len(rows)
    if published is None:
        counted = f"{name}: {count} rows"
    elif published == count:
        counted = f"{name}: {count} rows, published {published}"
    else:
        counted = f"{name}: {count} rows, but {published} are published"
    return LoadedSplit(rows, [counted, *(f"{name}: {line}" for line in report.lines())])
