"""Chunked text in the CoNLL-2000 format: sentences of words, and the spans that its tags mark.

A *chunk* is a phrase without other phrases inside, such as the noun phrase `the old river`. A *span* is a chunk, or the
words between two chunks.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from limbeck.corpus.files.small_files import read_plain_lines
from limbeck.errors import CorpusError

OUTSIDE = "O"
"""Tag and label of words between chunks."""

_TAG = re.compile(r"O|[BI]-\S+")
"""A chunk tag: `O`, `B-NP` or `I-NP`."""


class Span(NamedTuple):
    """Neighbouring words of a sentence: a chunk, or the words between two chunks.

    Args:
        sentence: Number of the sentence in the file, from 0.
        first: Number of the span's first word in the sentence, from 0.
        last: Number of its last word, which belongs to the span; a span of one word has `last == first`.
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

    Each line has one word in the first column and its chunk tag in the last column. A blank line ends a sentence. Tags
    are `B-TYPE` where a chunk begins, `I-TYPE` within a chunk and `O` outside. A word with `I-TYPE` that does not
    follow a word of the same type begins a chunk.

    Raises:
        CorpusError: naming the line, if there are no columns or the last one holds no chunk tag; if there is no chunk.
    """
    sentences: list[tuple[str, ...]] = []
    spans: list[Span] = []
    words: list[str] = []
    tags: list[str] = []
    # A blank line ends a sentence. One is added, since the last sentence may end with the file.
    lines = [*read_plain_lines(Path(path)), ""]
    for number, line in enumerate(lines, start=1):
        if line.strip():
            word, tag = _read_word(path, number, line)
            words.append(word)
            tags.append(tag)
        elif words:
            spans += _spans(tags, sentence=len(sentences))
            sentences.append(tuple(words))
            words = []
            tags = []
    if all(span.label == OUTSIDE for span in spans):
        raise CorpusError(f"'{path}' holds no chunks; give a file in the CoNLL-2000 format.")
    return ChunkedText(tuple(sentences), tuple(spans))


def _read_word(path: Path | str, number: int, line: str) -> tuple[str, str]:
    """Return the word of a line and its chunk tag.

    Args:
        path: The file, for the message.
        number: Number of the line, from 1, for the message.
        line: The line.
    """
    columns = line.split()
    if len(columns) < 2 or not _TAG.fullmatch(columns[-1]):
        raise CorpusError(
            f"Line {number} of '{path}' is '{line.strip()[:40]}', but CoNLL-2000 has three columns: a word, its "
            "part of speech, and a chunk tag such as B-NP, I-NP or O."
        )
    return columns[0], columns[-1]


def _spans(tags: Sequence[str], sentence: int) -> list[Span]:
    """Cut a sentence into its chunks and the runs of words between them.

    Args:
        tags: The tag of each word.
        sentence: Number of the sentence.
    """
    spans: list[Span] = []
    for place, tag in enumerate(tags):
        # `B-NP` is of the type NP. `O` has no type: its label is `O` itself.
        mark, _, chunk_type = tag.partition("-")
        label = chunk_type or OUTSIDE
        continues_last_span = mark != "B" and bool(spans) and spans[-1].label == label
        if continues_last_span:
            spans[-1] = spans[-1]._replace(last=place)
        else:
            spans.append(Span(sentence, first=place, last=place, label=label))
    return spans
