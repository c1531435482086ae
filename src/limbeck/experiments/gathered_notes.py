"""Notes on many splits, gathered: a line for each kind of note."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHOWN_SUBJECTS = 3
_NUMBER = re.compile(r"\d[\d,.]*")


def gather_notes(notes: Iterable[str]) -> list[str]:
    """Gather notes that say the same of several splits: the first as it is, then what it is likewise of.

    Args:
        notes: `what it is of: what there is to say` each. Two are of a kind if what they say differs in its numbers
            only, and in what follows a further colon or stands in brackets (names and examples).

    Returns:
        A line a kind, in the order of their first notes.
    """
    kinds: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        kinds.setdefault(_kind(note), []).append(note)
    return [first + _likewise(others) for first, *others in kinds.values()]


def _kind(note: str) -> str:
    said = note.partition(": ")[2] or note
    return _NUMBER.sub("#", re.split(r": | \(", said, maxsplit=1)[0])


def _likewise(notes: list[str]) -> str:
    if not notes:
        return ""
    subjects = list(dict.fromkeys(note.partition(": ")[0] for note in notes))
    shown = ", ".join(subjects[:_SHOWN_SUBJECTS])
    left = len(subjects) - _SHOWN_SUBJECTS
    return f"; likewise {shown}" + (f" and {left} more" if left > 0 else "")
