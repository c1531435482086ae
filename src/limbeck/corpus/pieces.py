"""Units of documents: whole documents, paragraphs, sentences, titles and questions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import NamedTuple

from limbeck.corpus.documents import Document
from limbeck.corpus.sentences import split_paragraphs, split_sentences

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
