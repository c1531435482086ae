"""What happened to a run's text on its way in: what was skipped, what was changed, and what it was taken for.

The report of a corpus counts all of them under one name each. A note that is none of those below is of skipped text.
Records have no more than the name, so it is told by its beginning: a test compares the beginnings with all names that
limbeck writes.
"""

from limbeck.core import records
from limbeck.corpus.building import splitting
from limbeck.corpus.files.json_files import HALF_CHARACTER
from limbeck.corpus.files.lines import BAD_BYTES, CUT_LINE
from limbeck.corpus.source_report import counted_problem
from limbeck.corpus.text.documents import CUT_DOCUMENT
from limbeck.evaluation.tasks.registry import PUBLISHED

_CHANGED = (
    BAD_BYTES,
    CUT_DOCUMENT,
    CUT_LINE,
    HALF_CHARACTER,
    "document whose control characters were replaced",
    "page longer than",
    "question cut to",
    "row cut to",
    "row with bytes that are not UTF-8",
    "sentence cut into windows",
    "table whose words begin with their language",
    "text of which the student reads only the beginning",
    "word longer than a window, cut",
)
"""Beginnings of notes on text that was read, but not as it stands in the file."""
_TAKEN = (
    "answer that is not at its answer_start, taken",
    "answer that its context does not contain, kept",
    "file of several lines",
    "file whose lines end with CR",
    "file without blank lines",
    "table of which",
    "table with",
    "tag of an entity that no tag ends",
    "tag that continues an entity that no tag begins",
    "tag that is no part of an entity",
    "tag without the part of an entity",
    "word without a token",
    "word without a word vector",
)
"""Beginnings of notes on what text was taken for; nothing of it is missing."""
_PUBLISHED = (f"({PUBLISHED} ", ", of which ")
"""In the note on a known data set whose number of rows is not the published one; the second is of earlier versions."""
_RESEMBLANCES = (splitting.LEAKED, splitting.NEAR)
"""Notes on scored rows that resemble training rows, which have sentences of their own."""


def skipped_text(notes: records.SourceNotes) -> dict[str, float]:
    """Return how many lines, rows or documents were skipped, by reason."""
    skipped = {}
    for note, count in notes.counts.items():
        is_about_read_text = note.startswith(_CHANGED) or _is_taken(note) or note in _RESEMBLANCES
        if count and not is_about_read_text:
            skipped[note] = count
    return skipped


def changed_text(notes: records.SourceNotes) -> dict[str, float]:
    """Return how many lines, rows or documents were cut or repaired and then read, by the change."""
    return {note: count for note, count in notes.counts.items() if count and note.startswith(_CHANGED)}


def taken_text(notes: records.SourceNotes) -> dict[str, float]:
    """Return how many files, rows or words were read in one of several possible ways, by that way."""
    return {note: count for note, count in notes.counts.items() if count and _is_taken(note)}


def _is_taken(note: str) -> bool:
    """Return whether a note tells what text was taken for, or how many rows a known data set has."""
    has_published_number = note.startswith("row of ") and any(words in note for words in _PUBLISHED)
    return note.startswith(_TAKEN) or has_published_number


def list_notes(counts: dict[str, float], *, of_pairs: bool = False) -> str:
    """Return notes with their counts in a line: `3 x line of invalid JSON, 9 rows cut to 64 tokens`.

    Args:
        counts: The number of cases of each note.
        of_pairs: Whether the rows are those of a ranking.
    """
    return ", ".join(counted_problem(count, note, of_pairs=of_pairs) for note, count in counts.items())
