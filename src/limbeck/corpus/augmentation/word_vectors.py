"""Words with vectors: from a text file in the format of GloVe, or the input embeddings of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from limbeck.corpus.augmentation.words import fast_tokenizer, pieces_of, vocabulary_words
from limbeck.corpus.files.opening import open_file
from limbeck.corpus.messages import safe_name
from limbeck.corpus.settings import ModelName
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.models.loading import load_model

_VECTORS_AT_ONCE = 20_000
_LONGEST_LINE = 1 << 20
"""Bytes. A longer line is read in several parts, none of which is a valid row."""
_BAD_LINE = "line without a word and the same number of values as the other lines"


class WordVectors(Protocol):
    """Words with vectors."""

    def find(self, words: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return the vectors of the words that have one, each of shape `[width]`."""

    def blocks(self) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
        """Iterate over all words with their vectors `[words, width]`, in parts."""


@dataclass(frozen=True)
class VectorFile:
    """A text file in the format of GloVe, with a word and its numbers on each line; it may be compressed.

    It is read in parts, so that memory does not grow with the file. A first line of two numbers, as word2vec writes it,
    is skipped. Lines of another form are skipped and reported.

    Args:
        path: The file.
        report: Receives the lines that are skipped.
        most_words: The number of words after which the rest of the file is left unread; None reads all. Files of word
            vectors begin with the most frequent words.
    """

    path: Path
    report: SourceReport
    most_words: int | None = None

    def find(self, words: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return the vectors of words as they are spelt, or else in lower case."""
        wanted = {*words, *(word.lower() for word in words)}
        rows: dict[str, NDArray[np.float64]] = {}
        for block_words, block in self.blocks():
            for word, row in zip(block_words, block, strict=True):
                if word in wanted:
                    # A view would keep the whole block in memory.
                    rows[word] = row.copy()

        vectors: dict[str, NDArray[np.float64]] = {}
        for word in words:
            if word in rows:
                vectors[word] = rows[word]
            elif word.lower() in rows:
                vectors[word] = rows[word.lower()]
        return vectors

    def blocks(self) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
        """Iterate over the file; see `WordVectors`.

        Raises:
            CorpusError: if it cannot be read, or holds no vector.
        """
        words: list[str] = []
        rows: list[NDArray[np.float64]] = []
        width = 0  # Values of every vector; the first row decides.
        words_read = 0
        report = SourceReport()
        with open_file(self.path, report) as stream:
            lines = iter(partial(stream.readline, _LONGEST_LINE), b"")
            for number, line in enumerate(lines, start=1):
                word, _, numbers = line.strip().partition(b" ")
                is_header = number == 1 and len(numbers.split()) == 1
                if is_header:
                    continue
                row = _parse_numbers(numbers)
                if width == 0:
                    width = len(row)
                has_vector = width > 0 and len(row) == width and np.isfinite(row).all()
                if not has_vector:
                    report.note(_BAD_LINE, f"{self.path}:{number}")
                    continue
                words.append(word.decode(errors="replace"))
                rows.append(row)
                words_read += 1
                if words_read == self.most_words:
                    break
                if len(rows) == _VECTORS_AT_ONCE:
                    yield words, np.stack(rows)
                    words = []
                    rows = []
        if width == 0:
            raise CorpusError(
                f"'{safe_name(self.path)}' holds no word vectors: give a text file with a word and its numbers on "
                "each line, as in GloVe's files."
            )
        if rows:
            yield words, np.stack(rows)
        # The file may be read several times. Its problems replace those of an earlier pass, so they are counted once.
        self.report.counts.update(report.counts)
        self.report.examples.update(report.examples)


def _parse_numbers(text: bytes) -> NDArray[np.float64]:
    """Return numbers between spaces; an empty array if the text holds anything else."""
    try:
        return np.fromstring(text, np.float64, sep=" ")
    except ValueError:
        return np.empty(0)


class ModelVectors:
    """The input embeddings of a model. The vector of a word with several tokens is the mean over these tokens.

    Args:
        name: The model and its revision.
    """

    def __init__(self, name: ModelName) -> None:
        self._tokenizer = fast_tokenizer(name)
        embeddings = load_model(name[0], revision=name[1]).get_input_embeddings()
        self._rows: NDArray[np.float64] = embeddings.weight.detach().double().numpy()

    def find(self, words: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return the vectors of the words whose tokens are all known."""
        unknown = self._tokenizer.unk_token_id
        vectors: dict[str, NDArray[np.float64]] = {}
        for word, ids in zip(words, pieces_of(self._tokenizer, words), strict=True):
            if ids and unknown not in ids:
                vectors[word] = self._rows[ids].mean(0)
        return vectors

    def blocks(self) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
        """Yield the tokens that are whole words, with their vectors, in one part; see `WordVectors`."""
        words = vocabulary_words(self._tokenizer)
        yield list(words.values()), self._rows[list(words)]
