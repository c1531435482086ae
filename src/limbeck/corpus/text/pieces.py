"""The units that a document is cut into: itself, paragraphs, sentences, titles and questions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import NamedTuple

import regex

from limbeck.corpus.text.documents import Document
from limbeck.corpus.text.sentences import QUESTION_MARKS, SENTENCE_ENDS, split_paragraphs, split_sentences

_MOST_WORDS_OF_TITLE = 12
# Some corpora end every line with a full stop.
_MOST_WORDS_OF_STOPPED_TITLE = 4
# The mark that ends a text, perhaps with quotes or brackets behind it.
_CLOSING = regex.compile(rf"(?P<mark>[{SENTENCE_ENDS}:;,]|[{QUESTION_MARKS}])[\"'”’»)\]」』）]*\Z", regex.VERSION1)
_SENTENCE_END = regex.compile(rf"[{SENTENCE_ENDS}]", regex.VERSION1)
_SHOUTS = "!…！"
# Armenian has its mark within the word that is asked for, Greek a semicolon.
_WITHIN_QUESTION = regex.compile(r"\u055e|\p{Greek};[\"'”’»)\]]*\Z")


def find_titles(text: str) -> list[str]:
    """Return the headings of a document: short lines, each before a longer paragraph of whole sentences.

    A heading has at most 12 words and no closing punctuation, or at most 4 words and a full stop.
    """
    paragraphs = split_paragraphs(text)
    return [line for line, following in pairwise(paragraphs) if _is_title(line, following)]


def find_questions(text: str) -> list[str]:
    """Return the sentences of a document that are questions by their mark, of whichever script."""
    return [sentence for sentence in _all_sentences(text) if _is_question(sentence)]


def _is_question(sentence: str) -> bool:
    return _closing_mark(sentence) in [*QUESTION_MARKS] or _WITHIN_QUESTION.search(sentence) is not None


def _is_title(line: str, following: str) -> bool:
    if len(line) >= len(following) or not _SENTENCE_END.fullmatch(_closing_mark(following)):
        return False
    most_words = _MOST_WORDS_OF_TITLE
    mark = _closing_mark(line)
    if mark:
        is_full_stop = _SENTENCE_END.fullmatch(mark) and mark not in QUESTION_MARKS + _SHOUTS
        if not is_full_stop:
            return False
        most_words = _MOST_WORDS_OF_STOPPED_TITLE
    return len(line.split()) <= most_words and len(split_sentences(line)) == 1


def _closing_mark(text: str) -> str:
    """Return the mark that ends a text; empty where none does."""
    closing = _CLOSING.search(text)
    return closing["mark"] if closing else ""


def _whole_document(text: str) -> list[str]:
    return [text] if text else []


def _all_sentences(text: str) -> list[str]:
    sentences: list[str] = []
    for paragraph in split_paragraphs(text):
        sentences += split_sentences(paragraph)
    return sentences


UNITS: dict[str, Callable[[str], list[str]]] = {
    "document": _whole_document,
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
    unit_of_text: dict[str, str] = {}
    for unit in reversed(UNITS):
        if unit not in kinds:
            continue
        if unit == "title" and document.title:
            unit_of_text.setdefault(document.title, unit)
        for text in UNITS[unit](document.text):
            unit_of_text.setdefault(text, unit)
    return [Piece(text, unit) for text, unit in unit_of_text.items()]
