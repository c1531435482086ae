"""Documents: the cleaned texts of a corpus, their units, positions between them, and the report of all repairs.

Limits bound memory when untrusted files are read. Everything beyond them is counted in `SourceReport`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

Item = TypeVar("Item")
Step: TypeAlias = Callable[[int, int | None, str], None]
"""Called with the amount done, the total or `None` if it is not known, and what is counted."""

# C0 and C1 controls except tab and newline, the byte order mark, and surrogates that stand alone.
_UNWANTED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ud800-\udfff]")


class Document(NamedTuple):
    """One text: paragraphs separated by newlines.

    Args:
        text: The whole text, the title's sentence included.
        title: The first paragraph, when it summarises the rest (a docstring's summary line); else `None`.
    """

    text: str
    title: str | None = None

    @property
    def body(self) -> str:
        """The text without its title: what a retrieval evaluation searches for the title."""
        if self.title is None:
            return self.text
        return self.text.removeprefix(self.title).lstrip("\n")

    @property
    def key(self) -> int:
        """A 64-bit hash of the text: equal texts, in any corpus and any process, have equal keys."""
        return int.from_bytes(hashlib.blake2b(self.text.encode(), digest_size=8).digest(), "little")


def clean_text(text: str) -> str:
    """Return `text` with Unix newlines, without control characters, stripped at both ends.

    Lone surrogates (legal in JSON escapes and Python literals, illegal in UTF-8) become U+FFFD.
    """
    return clean_and_count(text)[0]


def clean_and_count(text: str) -> tuple[str, int]:
    """Return the cleaned text and the number of characters replaced, newlines and spaces not counted."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    replaced = 0
    if not text.isprintable():
        text, replaced = _UNWANTED.subn(_replacement, text)
    return text.strip(), replaced


def cut_text(text: str, longest: int) -> Iterator[str]:
    """Iterate over parts of at most `longest` characters that make up `text`, cut before spaces where there are some.

    No tokenizer in use joins a space to the word before it.
    """
    start = 0
    while len(text) - start > longest:
        end = text.rfind(" ", start + longest // 2, start + longest)
        end = start + longest if end < 0 else end
        yield text[start:end]
        start = end
    yield text[start:]


def next_batch(items: Iterator[Item], most: int, characters: int, length: Callable[[Item], int]) -> list[Item]:
    """Return the next items, until they are `most` or have so many characters; empty at the end."""
    batch, size = [], 0
    for item in items:
        batch.append(item)
        size += length(item)
        if len(batch) == most or size >= characters:
            break
    return batch


def _replacement(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\ufeff":
        return ""
    return "\ufffd" if "\ud800" <= character <= "\udfff" else " "


# A possible end of a sentence: closing punctuation, perhaps quotes or brackets, then space; scripts that
# write no space between sentences end at their own full stop. A run of dots is tried from its beginning only, and never
# partly, or a long one would take quadratic time.
_BOUNDARY = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+\s+|[。！？｡]+[”’」』）]*\s*")
_LAST_WORD = re.compile(r"[^\W_](?:[\w.'’-]*\w)?\Z")
_OPENERS = "\"'“‘«([{¿¡"

# Words whose full stop rarely ends a sentence, without it and in lower case.
_TITLES = "mr mrs ms dr prof st sr jr rev hon gen col capt lt sgt cmdr gov sen rep pres messrs mme mlle"
_LATIN = "e.g i.e eg ie cf vs viz al approx resp incl excl ca circa esp"
_PRINT = "fig figs eq eqs sec secs ch chap vol vols no nos nr pp ed eds trans repr univ dept"
_TRADE_AND_TIME = "inc ltd co corp bros assn jan feb mar apr jun jul aug sep sept oct nov dec mt ft"
_ABBREVIATIONS = frozenset(" ".join((_TITLES, _LATIN, _PRINT, _TRADE_AND_TIME)).split())
# These take a number after them ("No. 5", "Fig. 3"), and are ordinary words otherwise ("I said no.").
_NUMBERED = "no nos nr fig figs eq eqs sec secs ch chap vol vols pp jan mar mt co"
_BEFORE_NUMBER = frozenset(_NUMBERED.split())
_LOOK_BACK = 24


def split_sentences(text: str) -> list[str]:
    """Split one paragraph into sentences, on whitespace after closing punctuation.

    Abbreviations ("Dr. No"), initials ("J. S. Bach"), decimals ("3.14") and dotted names ("torch.nn") do not
    end a sentence, nor does a full stop before a lower-case letter. Joining the result with spaces gives the
    words of `text` back, all of them, in order.
    """
    sentences = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        end = match.end()
        if end < len(text) and _ends_sentence(text, match.start(), end):
            sentences.append(text[start:end].strip())
            start = end
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def split_paragraphs(text: str) -> list[str]:
    """Split a document at its newlines; blank lines are not paragraphs."""
    return [paragraph for line in text.split("\n") if (paragraph := line.strip())]


def _ends_sentence(text: str, punctuation: int, following: int) -> bool:
    if text[punctuation] in "。！？｡":
        return True
    first = text[following]
    if first in _OPENERS and following + 1 < len(text):
        first = text[following + 1]
    if first.islower():
        return False
    if text[punctuation] != "." or text.startswith("...", punctuation):
        return True
    word = _LAST_WORD.search(text[max(0, punctuation - _LOOK_BACK) : punctuation])
    if word is None:
        return True
    last = word.group()
    if len(last) == 1:
        # An initial ("J. Smith"), or a list number ("1. First"); but "Plan B. It" is worth the rare mistake.
        return not last.isalpha() or last in "Iai"
    last = last.lower()
    if last in _BEFORE_NUMBER:
        return not first.isdigit()
    return last not in _ABBREVIATIONS


_MOST_WORDS_OF_TITLE = 12
_MOST_WORDS_OF_STOPPED_TITLE = 4  # Some corpora end every line with a full stop.
_CLOSING = re.compile(r"(?P<mark>[.!?…:;,。！？｡])[\"'”’»)\]」』）]*\Z")


def find_titles(text: str) -> list[str]:
    """Return the headings of a document: short lines, each before a longer paragraph of whole sentences.

    A heading has at most 12 words and no closing punctuation, or at most 4 words and a full stop.
    """
    paragraphs = split_paragraphs(text)
    return [line for line, behind in pairwise(paragraphs) if len(line) < len(behind) and _is_title(line, behind)]


def _is_title(line: str, behind: str) -> bool:
    closing, end = _CLOSING.search(line), _CLOSING.search(behind)
    if end is None or end["mark"] not in ".!?…。！？｡" or (closing is not None and closing["mark"] not in ".。｡"):
        return False
    most = _MOST_WORDS_OF_TITLE if closing is None else _MOST_WORDS_OF_STOPPED_TITLE
    return len(line.split()) <= most and len(split_sentences(line)) == 1


def _all_sentences(text: str) -> list[str]:
    return [sentence for part in split_paragraphs(text) for sentence in split_sentences(part)]


def find_questions(text: str) -> list[str]:
    """Return the sentences of a document that end with a question mark."""
    closings = ((sentence, _CLOSING.search(sentence)) for sentence in _all_sentences(text))
    return [sentence for sentence, closing in closings if closing is not None and closing["mark"] in "?？"]


UNITS: dict[str, Callable[[str], list[str]]] = {
    "document": lambda text: [text] if text else [],
    "paragraph": split_paragraphs,
    "sentence": _all_sentences,
    "title": find_titles,
    "question": find_questions,
}
"""Unit name → function from a document's text to its units; titles and questions are some of the smaller ones."""


class Piece(NamedTuple):
    """A unit of a document.

    Args:
        text: Its text.
        kind: The name of the unit.
    """

    text: str
    kind: str


def split_pieces(document: Document, kinds: Collection[str]) -> list[Piece]:
    """Cut a document into the units of several kinds.

    A text that is a unit of several kinds is a piece of the narrowest, the last of `UNITS`, alone: a question is not a
    sentence too.

    Args:
        document: Its known title is a title, whatever its length.
        kinds: Names of `UNITS`.
    """
    found: dict[str, str] = {}
    for kind in (name for name in reversed(UNITS) if name in kinds):
        known = [document.title] if kind == "title" and document.title else []
        for text in (*known, *UNITS[kind](document.text)):
            found.setdefault(text, kind)
    return [Piece(text, kind) for text, kind in found.items()]


LONGEST_LINE = 16 * 2**20
"""Bytes. A longer line of a `.txt` file is read as several lines; in tables and JSON it is skipped."""

LONGEST_DOCUMENT = 4_000_000
"""Characters, about the length of War and Peace. A longer text is read as several documents, cut at spaces."""

MOST_EXPANSION = 200
"""A file that gives more than so many times its size is taken for damaged there; text packs 3 to 10 times."""

EXPANSION_FREE = 64 * 2**20
"""Bytes that any file may unpack to, however small it is."""


def most_unpacked(stored: int) -> int:
    """Return the bytes that so many stored ones may unpack to."""
    return max(EXPANSION_FREE, MOST_EXPANSION * stored)


LARGEST_WHOLE = 2**30
"""Bytes of a file that has to be read as a whole: JSON, and parquet that is compressed as a whole."""

LONGEST_PAGE = 4 * 2**20
"""Characters of a Markdown or reStructuredText page, which is read as a whole."""

BINARY_SHARE = 0.1
"""Of the bytes of a text file, those that no text has (control characters, bytes that are not UTF-8)."""

FEWEST_BINARY = 16
"""Such bytes that any text may have; with so many NULs it is binary whatever the share."""

JUDGED_BYTES = 2**16
"""Bytes of a text file that are judged together."""


class FoundText(NamedTuple):
    """A text of a shard, or a line of it.

    Args:
        text: As it stands there, a line without its newline.
        position: Bytes of the unpacked content up to its end, newline included; rows; or the state of a Hub data set.
        line: Lines up to there.
    """

    text: str
    position: Any
    line: int


@dataclass
class Cursor:
    """A position between two documents of a source; readers move it before they give a document.

    Args:
        shard: Shards that were read to their end.
        position: Position in the next one, as of `FoundText`. Falsy at the beginning.
        line: Lines before it, for messages.
        within: Documents taken of the text that follows, which is longer than a document may be.
    """

    shard: int = 0
    position: Any = 0
    line: int = 0
    within: int = 0

    @property
    def at_start(self) -> bool:
        """Whether nothing of the shard has been read."""
        return not self.position and not self.within

    def move(self, shard: int, position: Any = 0, line: int = 0, within: int = 0) -> None:
        """Go to another position."""
        self.shard, self.position, self.line, self.within = shard, position, line, within

    def to_json(self) -> list[Any]:
        """Return the position as plain JSON values, for a checkpoint."""
        return [self.shard, [self.position, self.line, self.within]]

    @classmethod
    def from_json(cls, values: list[Any]) -> Cursor:
        """Return the position that `to_json` wrote."""
        return cls(values[0], *values[1])


EXAMPLES_PER_KIND = 5
_LONGEST_PLACE = 300


@dataclass
class SourceReport:
    """Counts of everything that reading skipped or repaired.

    Bad text never stops a build and never disappears silently: it ends up here, and here in the manifest.

    Args:
        counts: Number of cases of each kind, for example `{"invalid JSON": 3}`.
        examples: The first few places of each kind, for example `{"invalid JSON": ["a.jsonl:12"]}`.
        muted: Whether cases are left out for now, because the same text has been read before.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    muted: bool = False

    def note(self, kind: str, where: str, count: int = 1) -> None:
        """Count `count` cases of `kind`, and keep `where` as an example if there are few yet."""
        if count <= 0 or self.muted:
            return
        self.counts[kind] = self.counts.get(kind, 0) + count
        places = self.examples.setdefault(kind, [])
        if len(places) < EXAMPLES_PER_KIND:
            places.append(one_line(where))

    def merge(self, other: SourceReport) -> None:
        """Add the cases of `other` to this report."""
        for kind, count in other.counts.items():
            room = EXAMPLES_PER_KIND - len(self.examples.get(kind, []))
            self.counts[kind] = self.counts.get(kind, 0) + count
            self.examples.setdefault(kind, []).extend(other.examples.get(kind, [])[: max(room, 0)])

    def lines(self) -> list[str]:
        """Return one readable line per kind, the most frequent first; empty when all was well."""
        order = sorted(self.counts, key=lambda kind: (-self.counts[kind], kind))
        return [
            f"{self.counts[kind]:,} x {kind} (such as {', '.join(self.examples.get(kind, ())[:2])})" for kind in order
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"counts": dict(self.counts), "examples": {k: list(v) for k, v in self.examples.items()}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SourceReport:
        """Return the report that `to_dict` wrote; empty for an empty mapping."""
        return cls(dict(values.get("counts", {})), {k: list(v) for k, v in values.get("examples", {}).items()})


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def one_line(text: object) -> str:
    """Return a name from outside as it may stand in a message: on one line, printable, of bounded length."""
    # File names may hold bytes that no terminal can print, newlines, and control sequences.
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text)[: 2 * _LONGEST_PLACE])
    return plain if len(plain) <= _LONGEST_PLACE else f"{plain[: _LONGEST_PLACE // 2]}…{plain[-_LONGEST_PLACE // 2 :]}"


CUT_DOCUMENT = f"document longer than {LONGEST_DOCUMENT:,} characters, cut"


def split_documents(found: FoundText, where: str, cursor: Cursor, report: SourceReport) -> Iterator[Document]:
    """Iterate over the documents of one text: cleaned, cut if it is too long, the first `cursor.within` left out.

    Args:
        found: The text, as it was read.
        where: Where it stands, for messages.
        cursor: Moved behind every document before it is given.
        report: Receives repairs; muted until now if the text was begun before.
    """
    report.muted = report.muted and cursor.within > 0
    cleaned, replaced = clean_and_count(found.text)
    if not cleaned:
        report.note("empty document", where)
        return
    if replaced:
        report.note("document whose control characters were replaced", where)
    parts = [cleaned]
    if len(cleaned) > LONGEST_DOCUMENT:
        parts = [part for piece in cut_text(cleaned, LONGEST_DOCUMENT) if (part := piece.strip())]
        report.note(CUT_DOCUMENT, where)
    report.muted = False
    for number, part in islice(enumerate(parts, start=1), cursor.within, None):
        if number < len(parts):
            cursor.within = number
        else:
            cursor.move(cursor.shard, found.position, found.line)
        yield Document(part)


def text_value(value: Any, where: str, column: str, report: SourceReport) -> str | None:
    """Return a value of the text column if it is text; other values are counted in the report."""
    if isinstance(value, str):
        return value
    report.note("empty document" if value is None else f"column '{column}' that is not text", where)
    return None
