"""Words of texts and vocabularies, and their neighbours in word vectors: of a file as GloVe's, or of a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from limbeck.corpus.files.opening import open_file
from limbeck.corpus.messages import safe_name
from limbeck.corpus.settings import ModelName
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.models.loading import load_model
from limbeck.models.tokenizers import load_tokenizer

_QUERIES_AT_ONCE = 1024
_VECTORS_AT_ONCE = 20_000
_LONGEST_LINE = 1 << 20
_BAD_LINE = "line without a word and the same number of values as the other lines"

# Words: letters and digits with apostrophes inside, and every ideograph, as BERT cuts them. Punctuation is none.
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LETTERS = rf"[^\W{_IDEOGRAPHS}]+"
WORD = re.compile(rf"[{_IDEOGRAPHS}]|{_LETTERS}(?:['’]{_LETTERS})*")
"""A word of a text."""

# Beginnings of tokens that begin a word, in vocabularies of byte-level BPE and of SentencePiece.
_WORD_MARKS = ("Ġ", "▁")
# The beginning of tokens that continue a word, in vocabularies of WordPiece.
_CONTINUATION = "##"


def fast_tokenizer(name: ModelName) -> PreTrainedTokenizerBase:
    """Load a tokenizer that tells where tokens are in a text.

    Raises:
        CorpusError: if it is a slow one.
    """
    tokenizer = load_tokenizer(name[0], revision=name[1])
    if not tokenizer.is_fast:
        raise CorpusError(
            f"Augmentation needs the position of every token in the text, which the slow tokenizer of '{name[0]}' "
            "does not provide: name a model with a fast one (a tokenizer.json)."
        )
    return tokenizer


def pieces_of(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[list[int]]:
    """Return the pieces of words as they have them behind a space."""
    if not words:  # Tokenizers fail where nothing is given.
        return []
    ids: list[list[int]] = tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
    return ids


def vocabulary_words(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Return the tokens that are whole words, by id."""
    vocabulary = tokenizer.get_vocab()
    special_ids = set(tokenizer.all_special_ids)
    marks_words = any(token.startswith(_WORD_MARKS) for token in vocabulary)

    def begins_word(token: str) -> bool:
        if marks_words:
            return token.startswith(_WORD_MARKS)
        return not token.startswith(_CONTINUATION)

    ids = sorted(index for token, index in vocabulary.items() if index not in special_ids and begins_word(token))
    words: dict[int, str] = {}
    for index in ids:
        word = tokenizer.decode([index]).strip()
        if WORD.fullmatch(word):
            words[index] = word
    return words


class WordVectors(Protocol):
    """Words with vectors."""

    def find(self, words: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return the vectors of words, of those that have one."""

    def blocks(self) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
        """Iterate over all words with their vectors `[words, width]`, in parts."""


@dataclass(frozen=True)
class VectorFile:
    """A text file of words and numbers as GloVe's: `word 0.1 -0.2 …` a line, maybe packed (.gz, .xz, .zst).

    It is read through in parts, so that memory does not grow with it. A first line of two numbers, as word2vec has it,
    is left out, and so are lines that are no such row, which are counted.

    Args:
        path: The file.
        report: Receives the lines that were left out.
    """

    path: Path
    report: SourceReport

    def find(self, words: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return the vectors of words as they are written, else of their lower case."""
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
        width = 0
        report = SourceReport()
        with open_file(self.path, report) as stream:
            lines = iter(partial(stream.readline, _LONGEST_LINE), b"")
            for number, line in enumerate(lines, start=1):
                word, _, numbers = line.strip().partition(b" ")
                is_header = number == 1 and len(numbers.split()) == 1
                if is_header:
                    continue
                row = _parse_numbers(numbers)
                # The first row decides the width of all.
                if width == 0:
                    width = len(row)
                if width == 0 or len(row) != width or not np.isfinite(row).all():
                    report.note(_BAD_LINE, f"{self.path}:{number}")
                    continue
                words.append(word.decode(errors="replace"))
                rows.append(row)
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
        # However often the file is read, its lines are counted once.
        self.report.counts.update(report.counts)
        self.report.examples.update(report.examples)


def _parse_numbers(text: bytes) -> NDArray[np.float64]:
    """Read numbers between spaces; none where something else stands there."""
    try:
        return np.fromstring(text, np.float64, sep=" ")
    except ValueError:
        return np.empty(0)


class ModelVectors:
    """The word embeddings of a model: of tokens that are whole words, and of other words the mean over their pieces.

    Args:
        name: The model and its revision.
    """

    def __init__(self, name: ModelName) -> None:
        self._tokenizer = fast_tokenizer(name)
        embeddings = load_model(name[0], revision=name[1]).get_input_embeddings()
        self._rows: NDArray[np.float64] = embeddings.weight.detach().double().numpy()

    def find(self, words: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return the vectors of words of known pieces."""
        unknown = self._tokenizer.unk_token_id
        vectors: dict[str, NDArray[np.float64]] = {}
        for word, ids in zip(words, pieces_of(self._tokenizer, words), strict=True):
            if ids and unknown not in ids:
                vectors[word] = self._rows[ids].mean(0)
        return vectors

    def blocks(self) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
        """Give the words of the vocabulary; see `WordVectors`."""
        words = vocabulary_words(self._tokenizer)
        yield list(words.values()), self._rows[list(words)]


def nearest_words(vectors: WordVectors, words: Sequence[str], count: int) -> dict[str, list[str]]:
    """Return the `count` words with the most similar vectors for each word, the nearest first.

    Similarity is the cosine, in float64, so that which words are asked for together decides nothing. The word itself
    is none of them, in upper or lower case. A word without a vector has no neighbours.

    Args:
        vectors: All words.
        words: The words whose neighbours are wanted.
        count: K.
    """
    vector_of_word = vectors.find(words)
    neighbours: dict[str, list[str]] = {word: [] for word in words}
    if not vector_of_word:
        return neighbours

    queries = list(vector_of_word)
    query_rows = _unit_rows(list(vector_of_word.values()))
    # The best so far of each query: the cosine and the word.
    best: list[list[tuple[float, str]]] = [[] for _ in queries]
    for block_words, block in vectors.blocks():
        candidates = _Candidates(block_words, block)
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            part = slice(first, first + _QUERIES_AT_ONCE)
            for query, new in enumerate(candidates.nearest(queries[part], query_rows[part], count), start=first):
                best[query] = sorted(best[query] + new, key=_cosine_of, reverse=True)[:count]

    for query_word, nearest in zip(queries, best, strict=True):
        neighbours[query_word] = [word for _, word in nearest]
    return neighbours


class _Candidates:
    """A part of the words with vectors, of which neighbours are chosen.

    Args:
        words: The words.
        rows: Their vectors, `[words, width]`.
    """

    def __init__(self, words: list[str], rows: NDArray[np.float64]) -> None:
        self._words = words
        self._rows = _unit_rows(rows)
        self._is_word = torch.tensor([word.isprintable() and WORD.search(word) is not None for word in words])
        # The places of a word in whatever case.
        self._places: dict[str, list[int]] = {}
        for place, word in enumerate(words):
            self._places.setdefault(word.casefold(), []).append(place)

    def nearest(self, queries: list[str], query_rows: torch.Tensor, count: int) -> list[list[tuple[float, str]]]:
        """Return the cosines and words of the nearest candidates of each query, the nearest first.

        Args:
            queries: The words.
            query_rows: Their vectors of length one, `[queries, width]`.
            count: Most candidates of each.
        """
        cosines = (query_rows @ self._rows.T).masked_fill_(~self._is_word, -torch.inf)
        for row, query in enumerate(queries):
            cosines[row, self._places.get(query.casefold(), [])] = -torch.inf
        values, places = cosines.topk(min(count, len(self._words)))
        nearest: list[list[tuple[float, str]]] = []
        for own_values, own_places in zip(values.tolist(), places.tolist(), strict=True):
            pairs = zip(own_values, own_places, strict=True)
            nearest.append([(value, self._words[place]) for value, place in pairs if value > -torch.inf])
        return nearest


def _cosine_of(neighbour: tuple[float, str]) -> float:
    cosine, _ = neighbour
    return cosine


def _unit_rows(rows: Sequence[NDArray[np.float64]] | NDArray[np.float64]) -> torch.Tensor:
    """Return vectors scaled to length one, `[rows, width]`."""
    return torch.nn.functional.normalize(torch.from_numpy(np.asarray(rows, np.float64)), dim=-1)
