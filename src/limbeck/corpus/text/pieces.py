"""The units that a document is cut into: the whole document, paragraphs, sentences, titles and questions.

A *unit* is a way to cut (`"sentence"`), and a *piece* is a text that was cut so, with the name of its unit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import NamedTuple

import regex

from limbeck.corpus.text.documents import Document
from limbeck.corpus.text.sentences import QUESTION_MARKS, SENTENCE_ENDS, split_paragraphs, split_sentences

_MOST_WORDS_OF_TITLE = 12
# Some corpora end every line with a full stop, titles too. Longer lines with a full stop are taken for sentences.
_MOST_WORDS_OF_STOPPED_TITLE = 4
# The mark that ends a text, perhaps with quotes or brackets behind it.
_CLOSING = regex.compile(rf"(?P<mark>[{SENTENCE_ENDS}:;,]|[{QUESTION_MARKS}])[\"'”’»)\]」』）]*\Z", regex.VERSION1)
# The run of marks that ends a text. It is only matched from its beginning, since a long one would take quadratic time.
_MARK = rf"[{SENTENCE_ENDS}{QUESTION_MARKS}]"
_CLOSING_MARKS = regex.compile(rf"(?<!{_MARK})(?P<marks>{_MARK}++)[\"'”’»)\]」』）]*\Z", regex.VERSION1)
_SENTENCE_END = regex.compile(rf"[{SENTENCE_ENDS}]", regex.VERSION1)
# Marks that end a sentence and are neither a full stop nor the mark of a question.
_SHOUTS = "!…！"
# In Armenian the mark of a question stands within the word that is asked about; in Greek it is a semicolon at the end.
_WITHIN_QUESTION = regex.compile(r"\u055e|\p{Greek};[\"'”’»)\]]*\Z")


def find_titles(text: str) -> list[str]:
    """Return the headings of a document: short lines, each before a longer paragraph of whole sentences.

    A heading has at most 12 words and no closing punctuation, or at most 4 words and a full stop.
    """
    paragraphs = split_paragraphs(text)
    return [line for line, following in pairwise(paragraphs) if _is_title(line, following)]


def find_questions(text: str) -> list[str]:
    """Return the sentences of a document that end with a question mark of any script."""
    return [sentence for sentence in _all_sentences(text) if _is_question(sentence)]


def _is_question(sentence: str) -> bool:
    closing = _CLOSING_MARKS.search(sentence)
    marks = closing["marks"] if closing else ""
    # Other marks may stand beside that of the question: "What?!", "Who?…".
    has_question_mark = any(mark in QUESTION_MARKS for mark in marks)
    return has_question_mark or _WITHIN_QUESTION.search(sentence) is not None


def _is_title(line: str, following: str) -> bool:
    """Whether a line is the title of the paragraph that follows it."""
    if len(line) >= len(following):
        return False
    ends_with_sentence = _SENTENCE_END.fullmatch(_closing_mark(following))
    if not ends_with_sentence:
        return False
    most_words = _MOST_WORDS_OF_TITLE
    closing_mark = _closing_mark(line)
    if closing_mark:
        # Of the marks that may end a title, only a full stop of some script does.
        is_full_stop = _SENTENCE_END.fullmatch(closing_mark) and closing_mark not in QUESTION_MARKS + _SHOUTS
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
"""Unit name → function from a document's text to the texts of that unit, from the widest unit to the narrowest.

A title is also a paragraph, and a question is also a sentence.
"""


UNITS_OF_SENTENCES = frozenset({"sentence", "title", "question"})
"""Units that depend on where sentences end."""


class Piece(NamedTuple):
    """A text that was cut from a document.

    Args:
        text: The text.
        kind: Name of its unit.
        teacher_text: The text that the teacher reads in its place, see `Document`; such a piece is a whole document.
    """

    text: str
    kind: str
    teacher_text: str | None = None


def split_pieces(document: Document, kinds: Collection[str]) -> list[Piece]:
    """Cut a document into the pieces of several units.

    A text can belong to several units: each question is also a sentence. It becomes one piece, of the narrowest of the
    units that are asked for. A text that the document repeats becomes one piece as well.

    Args:
        document: The document. If its title is known, that is a piece of the unit "title", whatever its length.
        kinds: Names of the units, from `UNITS`.

    Returns:
        The pieces of the narrowest unit, then those of wider ones.
    """
    unit_of_text: dict[str, str] = {}
    # `UNITS` begins with the widest unit. The narrowest comes first here, since `setdefault` keeps a text's first unit.
    for unit in reversed(UNITS):
        if unit not in kinds:
            continue
        if unit == "title" and document.title:
            unit_of_text.setdefault(document.title, unit)
        for text in UNITS[unit](document.text):
            unit_of_text.setdefault(text, unit)
    return [Piece(text, unit) for text, unit in unit_of_text.items()]


def cut_document(document: Document, unit: str, units: Collection[str] = ()) -> list[Piece]:
    """Cut a document into the pieces that a corpus reads: of one unit, or of several that its source names.

    Args:
        document: The document.
        unit: Name of the unit of the corpus, from `UNITS`.
        units: Names of the units of the source, which take its place; empty where it names none.
    """
    if document.teacher_text is not None:
        # The parts of a text and of its translation would not fit to each other.
        return [Piece(document.text, "document", document.teacher_text)]
    if units:
        return split_pieces(document, units)
    return [Piece(text, unit) for text in UNITS[unit](document.text)]
