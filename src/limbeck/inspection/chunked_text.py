"""Chunked text in the CoNLL-2000 format: sentences of words, and the spans that its tags mark."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from limbeck.corpus.files.small_files import read_plain_lines
from limbeck.errors import CorpusError

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
    """Read a file in the CoNLL-2000 format.

    It has a word a line, its chunk tag in the last column, and a blank line after each sentence. Tags are `B-TYPE`
    where a chunk begins, `I-TYPE` within one and `O` outside; an `I-` that continues nothing begins a chunk.

    Raises:
        CorpusError: naming the line, if there are no columns or the last one holds no chunk tag; if there is no chunk.
    """
    sentences: list[tuple[str, ...]] = []
    spans: list[Span] = []
    lines = enumerate(read_plain_lines(Path(path)), start=1)
    for is_blank, block in groupby(lines, key=lambda line: not line[1].strip()):
        if not is_blank:
            words, tags = zip(*(_read_word(path, *line) for line in block), strict=True)
            spans += _spans(tags, len(sentences))
            sentences.append(words)
    if all(span.label == OUTSIDE for span in spans):
        raise CorpusError(f"'{path}' holds no chunks; give a file in the CoNLL-2000 format.")
    return ChunkedText(tuple(sentences), tuple(spans))


def _read_word(path: Path | str, number: int, line: str) -> tuple[str, str]:
    """Return a word and its tag."""
    columns = line.split()
    if len(columns) < 2 or not _TAG.fullmatch(columns[-1]):
        raise CorpusError(
            f"Line {number} of '{path}' is '{line.strip()[:40]}', without the columns of CoNLL-2000: a word, "
            "its part of speech, and a chunk tag such as B-NP, I-NP or O."
        )
    return columns[0], columns[-1]


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
