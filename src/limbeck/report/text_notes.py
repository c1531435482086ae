"""What happened to a run's text on its way in: what was skipped, what was changed, and what it was taken for.

The report of a corpus counts all of them under one name each. A note that is none of those below is of skipped text.
Records have no more than the name, so it is told by its beginning: a test compares the beginnings with all names that
limbeck writes.
"""

from limbeck.core import records
from limbeck.corpus.building import splitting
from limbeck.corpus.files.json_files import HALF_CHARACTER
from limbeck.corpus.files.lines import BAD_BYTES, CUT_LINE
from limbeck.corpus.text.documents import CUT_DOCUMENT

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
_PUBLISHED = "are published"
"""The end of the note on a known data set whose number of rows is not the published one."""
_RESEMBLANCES = (splitting.LEAKED, splitting.NEAR)
"""Notes on scored rows that resemble training rows, which have sentences of their own."""


def skipped_text(notes: records.SourceNotes) -> dict[str, float]:
    """Return how many lines, rows or documents were skipped, by reason."""
    skipped = {}
    for note, count in notes.counts.items():
        is_about_read_text = note.startswith(_CHANGED + _TAKEN) or note.endswith(_PUBLISHED) or note in _RESEMBLANCES
        if count and not is_about_read_text:
            skipped[note] = count
    return skipped


def changed_text(notes: records.SourceNotes) -> dict[str, float]:
    """Return how many lines, rows or documents were cut or repaired and then read, by the change."""
    return {note: count for note, count in notes.counts.items() if count and note.startswith(_CHANGED)}


def taken_text(notes: records.SourceNotes) -> dict[str, float]:
    """Return how many files, rows or words were read in one of several possible ways, by that way."""
    return {
        note: count
        for note, count in notes.counts.items()
        if count and (note.startswith(_TAKEN) or note.endswith(_PUBLISHED))
    }


def list_notes(counts: dict[str, float]) -> str:
    """Return notes with their counts in a line: `invalid JSON (3), empty document (1)`."""
    return ", ".join(f"{note} ({count:,})" for note, count in counts.items())
