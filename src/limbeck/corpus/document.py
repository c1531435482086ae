"""`Document`: one text of a corpus, and the cleaning that makes any string safe to store and tokenise."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

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
    """Return what `clean_text` does, and how many characters it replaced; newlines and spaces are not counted."""
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


def _replacement(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\ufeff":
        return ""
    return "\ufffd" if "\ud800" <= character <= "\udfff" else " "
