"""Notes of an evaluation in short: notes that say the same of several splits or cells become one line.

A note is `subject: text`, where the subject is a task, or a task and a split: `SST-2 test: 3 rows left out`. Notes
belong together if they have the same *pattern*, which is the text with its numbers, but without names and examples.
"""

import re
from collections.abc import Iterable

from limbeck.core.blocks import counted
from limbeck.evaluation.tasks.loading import without_missing_files
from limbeck.evaluation.tasks.registry import DRAWN, PUBLISHED

_SHOWN_SUBJECTS = 3
_DETAILS = re.compile(r": | \(")
"""A colon or an opening bracket in a note; what follows it are names and examples."""


def gather_notes(notes: Iterable[str]) -> list[str]:
    """Gather notes that say the same of several splits: the first whole, then the subjects of the others.

    Args:
        notes: `subject: note` each. Two belong together if their notes differ only in the part behind a further colon
            or in brackets (names and examples). Notes on splits with other numbers of rows than were published belong
            together too.

    Returns:
        A line for each group, in the order of their first notes.
    """
    notes_by_pattern: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        notes_by_pattern.setdefault(_pattern_of(note), []).append(note)
    lines = []
    for first, *others in notes_by_pattern.values():
        lines.append(first + _likewise(others))
    return lines


def without_sizes_of_draws(notes: Iterable[str]) -> list[str]:
    """Return notes without those on the size of a split of which another note says how many rows were drawn.

    Args:
        notes: Notes such as `mine train: 800 rows`, and `mine train: 400 of 800 rows, drawn`.
    """
    notes = list(notes)
    sizes = set()
    for note in notes:
        subject, _, text = note.partition(": ")
        _, of, size = text.removesuffix(f", {DRAWN}").partition(" of ")
        if text.endswith(f", {DRAWN}") and of:
            # Behind the size of a ranking stands how many pairs were drawn.
            size, _, _ = size.partition(" (")
            sizes.add(f"{subject}: {size}")

    kept = []
    for note in notes:
        # The size of a ranking has the number of its pairs in brackets: `300 queries (1,500 pairs)`.
        size, _, _ = note.partition(" (")
        # That a split has another size than the published one is news.
        if size not in sizes or PUBLISHED in note:
            kept.append(note)
    return kept


def _pattern_of(note: str) -> str:
    """Return the part of a note that notes of the same group share."""
    _, _, text = note.partition(": ")
    if not text:
        # A note without a subject.
        text = note
    if PUBLISHED in text:
        # All notes on splits with other numbers of rows than were published.
        return PUBLISHED
    without_files = without_missing_files(text)
    return _DETAILS.split(without_files, maxsplit=1)[0]


def _likewise(notes: list[str]) -> str:
    """Return the end of a line, which names the subjects of the further notes of its group; "" if there are none.

    Args:
        notes: The further notes, which all have the pattern of the first.
    """
    if not notes:
        return ""
    # The splits have different numbers of rows, so that "likewise" would be wrong of them, and each has its own number.
    is_on_numbers_of_rows = PUBLISHED in notes[0]
    end_of_subject = ": "
    if is_on_numbers_of_rows:
        # The published number of rows stands in brackets.
        end_of_subject = " ("
    subjects: list[str] = []
    for note in notes:
        subject, _, _ = note.partition(end_of_subject)
        if subject not in subjects:
            subjects.append(subject)
    shown = ", ".join(subjects[:_SHOWN_SUBJECTS])
    if len(subjects) > _SHOWN_SUBJECTS:
        shown += f" and {len(subjects) - _SHOWN_SUBJECTS} more"

    if is_on_numbers_of_rows:
        return f"; also incomplete: {shown}"
    return f"; likewise {shown}"


def failure_notes(noun: str, failed: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return a line for each reason of failure, with the number and the first that failed.

    Args:
        noun: Word for one of the things that failed, such as "run".
        failed: Title and reason of each thing that failed.
    """
    titles_of_reason: dict[str | None, list[str]] = {}
    for title, reason in failed:
        titles_of_reason.setdefault(reason, []).append(title)
    notes = []
    for reason, titles in titles_of_reason.items():
        notes.append(f"{counted(len(titles), noun)} failed (first {titles[0]}): {reason}")
    return notes
