"""Columns of tables: those of a task's splits, and those of the variants of sentence vectors.

Names of splits have parts: in `test.de.en` the *stem* is `test`, and the languages follow after dots.
"""

from collections.abc import Iterable, Iterator, Sequence

from limbeck.core.studies import Column
from limbeck.evaluation.plan.variants import Variant
from limbeck.kinds.task import Task

_SUFFIXES = {"matched": "m", "mismatched": "mm"}
"""Last word in the name of a split of MNLI to the end of the column's name, as in MNLI-m and MNLI-mm in papers."""


def task_columns(task: Task) -> list[Column]:
    """Return the columns of a task, the main one first.

    Splits with the same stem in several languages, such as `test.de` and `test.en`, have one column for their mean, and
    a detail column each.
    """
    splits_by_stem: dict[str, list[str]] = {}
    for split in task.scored:
        stem, _, _ = split.partition(".")
        splits_by_stem.setdefault(stem, []).append(split)

    columns: list[Column] = []
    for stem, splits in splits_by_stem.items():
        key, title = _key_and_title(task, stem, taken=[column.key for column in columns])
        # Of several splits, the first is named too: its heading would be the task's, as if it were all of it.
        if len(splits_by_stem) > 1 and title == task.title:
            title = f"{task.title} ({stem})"
        columns.append(_column(task, key, title, splits, is_detail=False))
        if len(splits) == 1:
            continue
        for split in splits:
            languages = _languages(split)
            columns.append(_column(task, f"{key}.{languages}", f"{title} {languages}", [split], is_detail=True))
    return columns


def _column(task: Task, key: str, title: str, splits: Sequence[str], *, is_detail: bool) -> Column:
    """Return a column with the facts of its task."""
    column = Column(key=key, title=title, task=task.name, kind=task.kind, splits=list(splits), detail=is_detail)
    if task.positive is not None:
        column.positive = task.positive
    return column


def _key_and_title(task: Task, stem: str, *, taken: Sequence[str]) -> tuple[str, str]:
    """Return the key and the title of a column.

    Args:
        task: The task.
        stem: Name of its splits, without their languages.
        taken: Keys of the earlier columns of the task. Its first column is named as the task alone.
    """
    _, _, last_word = stem.rpartition("_")
    suffix = _SUFFIXES.get(last_word)
    # `validation_matched` and `test_matched` of one task have the same suffix, which only the first of them gets.
    if suffix is not None and f"{task.name}-{suffix}" not in taken:
        return f"{task.name}-{suffix}", f"{task.title}-{suffix}"
    if not taken:
        return task.name, task.title
    return f"{task.name}:{stem}", f"{task.title} ({stem})"


def headings_of_split(title: str, split: str) -> set[str]:
    """Return the titles that a column over a split may have, without those of details.

    Args:
        title: The task's title.
        split: Name of the split.
    """
    stem, _, _ = split.partition(".")
    headings = {title, f"{title} ({stem})"}
    _, _, last_word = stem.rpartition("_")
    if last_word in _SUFFIXES:
        headings.add(f"{title}-{_SUFFIXES[last_word]}")
    return headings


def _languages(split: str) -> str:
    """Return the languages in the name of a split, each once: `en` for `test.en.en`, `de-en` for `test.de.en`."""
    languages = split.split(".")[1:]
    return "-".join(dict.fromkeys(languages))


def variant_columns(columns: Sequence[Column], variants: Iterable[Variant]) -> Iterator[Column]:
    """Iterate over the columns of variants: all of the task's columns for each way to score sentence vectors.

    Args:
        columns: The columns of the task.
        variants: The variants, without that of whole vectors; see `limbeck.evaluation.plan.variants`.
    """
    for variant in variants:
        for column in columns:
            changes = {
                "key": f"{column.key}{variant}",
                "title": f"{column.title}{variant.title}",
                "splits": [f"{split}{variant}" for split in column.splits],
            }
            yield column.model_copy(update=changes)
