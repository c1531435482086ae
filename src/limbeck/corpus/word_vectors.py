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

from limbeck.corpus.messages import safe_name
from limbeck.corpus.opening import open_file
from limbeck.corpus.settings import ModelName
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.models.loading import load_model
from limbeck.models.tokenizers import load_tokenizer

_QUERIES_AT_ONCE = 1024
_VECTORS_AT_ONCE = 20_000
_LONGEST_LINE = 1 << 20

# Words: letters and digits with apostrophes inside, and every ideograph, as BERT cuts them. Punctuation is none.
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LETTERS = rf"[^\W{_IDEOGRAPHS}]+"
WORD = re.compile(rf"[{_IDEOGRAPHS}]|{_LETTERS}(?:['’]{_LETTERS})*")
"""A word of a text."""


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
    marks = ("Ġ", "▁")
    marked = any(token.startswith(marks) for token in vocabulary)
    special = {*tokenizer.all_special_ids}
    begins = sorted(
        index
        for token, index in vocabulary.items()
        if index not in special and (token.startswith(marks) if marked else not token.startswith("##"))
    )
    found = {index: tokenizer.decode([index]).strip() for index in begins}
    return {index: word for index, word in found.items() if WORD.fullmatch(word)}


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
        rows = ((word, row) for names, block in self.blocks() for word, row in zip(names, block, strict=True))
        found = {word: row.copy() for word, row in rows if word in wanted}
        both = {word: (found.get(word), found.get(word.lower())) for word in words}
        return {word: row for word, (own, low) in both.items() if (row := low if own is None else own) is not None}

    def blocks(self) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
        """Iterate over the file; see `WordVectors`.

        Raises:
            CorpusError: if it cannot be read, or holds no vector.
        """
        names, rows, width, own = [], [], 0, SourceReport()
        with open_file(self.path, own) as stream:
            lines = iter(partial(stream.readline, _LONGEST_LINE), b"")
            for number, line in enumerate(lines, start=1):
                word, _, numbers = line.strip().partition(b" ")
                if number == 1 and len(numbers.split()) == 1:
                    continue
                row = _numbers(numbers)
                width = width or len(row)
                if len(row) != width or not width or not np.isfinite(row).all():
                    own.note(
                        "line without a word and the same number of values as the other lines", f"{self.path}:{number}"
                    )
                    continue
                names.append(word.decode(errors="replace"))
                rows.append(row)
                if len(rows) == _VECTORS_AT_ONCE:
                    yield names, np.stack(rows)
                    names, rows = [], []
        if not width:
            raise CorpusError(
                f"'{safe_name(self.path)}' holds no word vectors: give a text file with a word and its numbers on "
                "each line, as in GloVe's files."
            )
        if rows:
            yield names, np.stack(rows)
        self.report.counts.update(own.counts)  # As often as the file is read, it is the same.
        self.report.examples.update(own.examples)


def _numbers(text: bytes) -> NDArray[np.float64]:
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
        pieces = zip(words, pieces_of(self._tokenizer, words), strict=True)
        return {word: self._rows[ids].mean(0) for word, ids in pieces if ids and unknown not in ids}

    def blocks(self) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
        """Give the words of the vocabulary; see `WordVectors`."""
        words = vocabulary_words(self._tokenizer)
        yield [*words.values()], self._rows[[*words]]


def nearest_words(vectors: WordVectors, words: Sequence[str], count: int) -> dict[str, list[str]]:
    """Return for each word those with the most similar vectors, the nearest first; none for a word without a vector.

    Similarity is the cosine, in float64, so that which words are asked for together decides nothing. The word itself
    is none of them, in upper or lower case.

    Args:
        vectors: All words.
        words: Those that are asked for.
        count: K.
    """
    found = vectors.find(words)
    names, wanted = [*found], _unit([*found.values()])
    best: list[list[tuple[float, str]]] = [[] for _ in names]
    for block_words, rows in vectors.blocks() if names else ():
        is_word = [word.isprintable() and WORD.search(word) is not None for word in block_words]
        places: dict[str, list[int]] = {}
        for place, word in enumerate(block_words):
            places.setdefault(word.casefold(), []).append(place)
        known, unit = torch.tensor(is_word), _unit(rows)
        for first in range(0, len(names), _QUERIES_AT_ONCE):
            part = slice(first, first + _QUERIES_AT_ONCE)
            similar = (wanted[part] @ unit.T).masked_fill_(~known, -torch.inf)
            for row, name in enumerate(names[part]):
                similar[row, places.get(name.casefold(), [])] = -torch.inf
            scores, ids = (found.tolist() for found in similar.topk(min(count, len(block_words))))
            for number, (own, at) in enumerate(zip(scores, ids, strict=True), start=first):
                new = [(score, block_words[i]) for score, i in zip(own, at, strict=True) if score > -torch.inf]
                best[number] = sorted(best[number] + new, key=lambda one: -one[0])[:count]
    near = {name: [word for _, word in own] for name, own in zip(names, best, strict=True)}
    return {word: near.get(word, []) for word in words}


def _unit(rows: Sequence[NDArray[np.float64]] | NDArray[np.float64]) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.from_numpy(np.asarray(rows, np.float64)), dim=-1)
