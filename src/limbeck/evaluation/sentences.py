"""Cutting plain documents into paragraphs and sentences, for the measures that need sentence pairs.

A small set of rules, not a trained splitter: it is the same for teacher and student, it needs no language to
be known, and a wrong cut costs a slightly odd sentence, never a wrong figure.
"""

from __future__ import annotations

import re

_TERMINATOR = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？।])\s*")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:e\.g|i\.e|etc|vs|cf|viz|al|approx|resp|ca|no|vol|pp?|eq|eqs|fig|figs|ref|refs|sec|ch|st|dr|mrs?|ms|"
    r"prof|jr|sr|inc|ltd|\w)\.$",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\s+")


def split_paragraphs(document: str) -> list[str]:
    """Return the paragraphs of a document, in order, without empty ones and with runs of space made one.

    Paragraphs are separated by blank lines; a document without any blank line has one paragraph a line.
    """
    document = document.strip()
    parts = re.split(r"\n[ \t\r]*\n", document)
    if len(parts) == 1:
        parts = document.splitlines()
    cleaned = (_SPACE.sub(" ", part).strip() for part in parts)
    return [part for part in cleaned if part]


def split_sentences(paragraph: str) -> list[str]:
    """Return the sentences of one paragraph, in order.

    A sentence ends at `.`, `!`, `?` or `…` before a space and anything but a lower-case letter, unless
    the word before is a common abbreviation or a single letter; and always at the full-width marks and `।`.
    """
    paragraph = _SPACE.sub(" ", paragraph).strip()
    sentences: list[str] = []
    start = 0
    for match in _TERMINATOR.finditer(paragraph):
        before, after = paragraph[start : match.end()].rstrip(), paragraph[match.end() : match.end() + 1]
        if match.end() == len(paragraph) or after.islower() or _ABBREVIATION.search(before):
            continue
        sentences.append(before)
        start = match.end()
    if rest := paragraph[start:].strip():
        sentences.append(rest)
    return sentences


def normalised(text: str) -> str:
    """Return `text` as it is compared for duplicates: case-folded, only letters and digits, single spaces."""
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()
