"""Chunked text in the CoNLL-2000 format: sentences of words, and the spans that its tags mark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from limbeck.errors import CorpusError
from limbeck.inspection.texts import read_lines

OUTSIDE = "O"
_TAG = re.compile(r"O|[BI]-\S+")


class Span(NamedTuple):
    """Neighbouring words of a sentence.

    Args:
        sentence: Number of the sentence in the file, from 0.
        first: Its first word, from 0.
        last: Its last word; a span of one word has both alike.
        label: The chunk type, such as `NP`; `O` for words between chunks.
    """

    sentence: int
    first: int
    last: int
    label: str


@dataclass(frozen=True)
class ChunkedText:
    """A file of chunked sentences.

    Attributes:
        sentences: The words of each.
        spans: All chunks, and all runs of words between them, in the order of the text.
    """

    sentences: tuple[tuple[str, ...], ...]
    spans: tuple[Span, ...]


def read_chunks(path: Path | str) -> ChunkedText:
    """Read a file in the CoNLL-2000 format: a word a line, its chunk tag in the last column, a blank line after each
    sentence.

    Tags are `B-TYPE` where a chunk begins, `I-TYPE` within one and `O` outside; an `I-` that continues nothing begins a
    chunk.

    Raises:
        CorpusError: naming the line, if there are no columns or the last one holds no chunk tag; if there is no chunk.
    """
    sentences: list[tuple[str, ...]] = []
    spans: list[Span] = []
    for words, tags in _sentences(Path(path)):
        spans += _spans(tags, len(sentences))
        sentences.append(words)
    if all(span.label == OUTSIDE for span in spans):
        raise CorpusError(f"'{path}' holds no chunk; give a file in the CoNLL-2000 format.")
    return ChunkedText(tuple(sentences), tuple(spans))


def _sentences(path: Path) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the words and the tags of each sentence."""
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        columns = line.split()
        if columns:
            if len(columns) < 2 or not _TAG.fullmatch(columns[-1]):
                raise CorpusError(
                    f"Line {number} of '{path}' is '{line.strip()[:40]}', without the columns of CoNLL-2000: a word, "
                    "its part of speech, and a chunk tag such as B-NP, I-NP or O."
                )
            words.append(columns[0])
            tags.append(columns[-1])
        elif words:
            yield tuple(words), tags
            words, tags = [], []


def _spans(tags: Sequence[str], sentence: int) -> list[Span]:
    """Cut a sentence into its chunks and the runs of words between them."""
    spans: list[Span] = []
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        label = kind or OUTSIDE
        if mark != "B" and spans and spans[-1].label == label:
            spans[-1] = spans[-1]._replace(last=place)
        else:
            spans.append(Span(sentence, place, place, label))
    return spans
