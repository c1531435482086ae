"""`Document`: a cleaned text of a corpus, and how texts of sources become documents."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from limbeck.corpus.files import limits
from limbeck.corpus.source_report import SourceReport, muted
from limbeck.corpus.text.cursor import Cursor, FoundText

Item = TypeVar("Item")
CUT_DOCUMENT = f"document longer than {limits.LONGEST_DOCUMENT:,} characters, cut"

_TRANSLATION_BITS = 32
"""Bits of a key in which translations of one text differ."""

# C0 and C1 controls except tab and newline, the byte order mark, and surrogates that stand alone.
_UNWANTED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ud800-\udfff]")


class Document(NamedTuple):
    """One text: paragraphs separated by newlines.

    Args:
        text: The whole text, the title's sentence included.
        title: The first paragraph, when it summarises the rest (a docstring's summary line); else `None`.
        teacher_text: The text that the teacher reads in its place, such as the English sentence that it translates;
            None where both models read the text.
    """

    text: str
    title: str | None = None
    teacher_text: str | None = None

    @property
    def body(self) -> str:
        """The text without its title: what a retrieval evaluation searches for the title."""
        if self.title is None:
            return self.text
        return self.text.removeprefix(self.title).lstrip("\n")

    @property
    def key(self) -> int:
        """A 64-bit hash of the text: equal texts, in any corpus and any process, have equal keys.

        Translations of one text have the upper half of its key, so that all of them are held out or none is; see
        `above_translations`. The lower half is of both texts, so that no translation counts as a repeat of another.
        """
        if self.teacher_text is None or self.teacher_text == self.text:
            return _hash(self.text)
        upper = _hash(self.teacher_text) >> _TRANSLATION_BITS << _TRANSLATION_BITS
        lower = _hash(f"{self.teacher_text}\0{self.text}") % 2**_TRANSLATION_BITS
        return upper + lower


def above_translations(key: int) -> int:
    """Return the least bound not below a key that keeps the translations of a text on one side of it."""
    return -(-key >> _TRANSLATION_BITS) << _TRANSLATION_BITS


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def clean_text(text: str) -> str:
    """Return `text` with Unix newlines, without control characters, stripped at both ends.

    Lone surrogates (legal in JSON escapes and Python literals, illegal in UTF-8) become U+FFFD.
    """
    cleaned, _ = clean_and_count(text)
    return cleaned


def clean_and_count(text: str) -> tuple[str, int]:
    """Return the cleaned text, see `clean_text`, and the number of its characters that were replaced."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    replaced = 0
    if not text.isprintable():  # A fast check, which most texts pass.
        text, replaced = _UNWANTED.subn(_replacement, text)
    return text.strip(), replaced


def cut_text(text: str, longest: int) -> Iterator[str]:
    """Iterate over parts of at most `longest` characters that make up `text`, cut before spaces where there are some.

    A cut before a space divides no token, since no tokenizer in use joins a space to the word in front of it.
    """
    start = 0
    while len(text) - start > longest:
        # The last space is looked for in the second half of the part; without one the part has its full length.
        end = text.rfind(" ", start + longest // 2, start + longest)
        if end < 0:
            end = start + longest
        yield text[start:end]
        start = end
    yield text[start:]


def next_batch(
    items: Iterator[Item], most_items: int, most_characters: int, characters_of: Callable[[Item], int]
) -> list[Item]:
    """Take the next items from an iterator; none at its end.

    Args:
        items: The items.
        most_items: Most items of the batch.
        most_characters: The batch ends with the item that reaches so many characters.
        characters_of: Counts the characters of an item.
    """
    batch: list[Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += characters_of(item)
        if len(batch) == most_items or characters >= most_characters:
            break
    return batch


def texts_behind(cursor: Cursor, texts: Iterable[FoundText], report: SourceReport) -> Iterator[FoundText]:
    """Iterate over the texts behind a cursor, of which the first may have been read before, up to one of its parts.

    The caller gives each text to `split_documents` before it asks for the next.

    Args:
        cursor: The position. Within a text, it stays there until that text has been split.
        texts: The texts; to read one may note cases in the report.
        report: The report. What was read before is not noted a second time.
    """
    iterator = iter(texts)
    # Empty texts may come in front of the one that was begun. They do not move the cursor.
    while cursor.within > 0:
        with muted(report):
            text = next(iterator, None)
        if text is None:
            return
        yield text
    yield from iterator


def split_documents(source_text: FoundText, where: str, cursor: Cursor, report: SourceReport) -> Iterator[Document]:
    """Iterate over the documents of one text: the cleaned text, or its parts where it is too long for a document.

    Where reading resumes within the text, the first `cursor.within` parts have been given before and are left out.

    Args:
        source_text: The text as it was read.
        where: Its place, for messages.
        cursor: It is moved behind every document before that is given.
        report: Receives repairs, unless reading resumes within the text.
    """
    given_parts = cursor.within
    if given_parts > 0:
        # The text is read again, and its repairs were noted at the first time.
        with muted(report):
            parts = _clean_parts(source_text.text, where, report)
    else:
        parts = _clean_parts(source_text.text, where, report)
    for number, part in enumerate(parts[given_parts:], start=given_parts + 1):
        is_last = number == len(parts)
        if is_last:
            cursor.move(cursor.shard, source_text.position, source_text.line)
        else:
            cursor.within = number
        yield Document(part)


def _clean_parts(text: str, where: str, report: SourceReport) -> list[str]:
    """Return a cleaned text, in parts where it is too long for a document; no part for an empty text.

    Args:
        text: The text as it was read.
        where: Its place, for messages.
        report: Receives repairs.
    """
    cleaned, replaced = clean_and_count(text)
    if not cleaned:
        report.note("empty document", where)
        return []
    if replaced:
        report.note("document whose control characters were replaced", where)
    if len(cleaned) <= limits.LONGEST_DOCUMENT:
        return [cleaned]
    stripped = [part.strip() for part in cut_text(cleaned, limits.LONGEST_DOCUMENT)]
    report.note(CUT_DOCUMENT, where)
    return [part for part in stripped if part]


def text_value(value: Any, where: str, column: str, report: SourceReport) -> str | None:
    """Return a value of the text column if it is text; other values are counted in the report."""
    if isinstance(value, str):
        return value
    if value is None:
        report.note("empty document", where)
    else:
        report.note(f"column '{column}' that is not text", where)
    return None


def _replacement(match: re.Match[str]) -> str:
    """Return nothing for a byte order mark, U+FFFD for a surrogate, and a space for a control character."""
    character = match.group()
    if character == "\ufeff":
        return ""
    is_surrogate = "\ud800" <= character <= "\udfff"
    return "\ufffd" if is_surrogate else " "
