"""`StoredSide`: a teacher beside its student by stored sentence vectors, so that it need not be loaded.

The vectors are of the texts that `compare_models` would choose. They lie in a store of their own inside the teacher's
store (`COMPARED`), since they are read as the evaluation reads them: each text by itself, with the prompt of its role.
A store that was made of a file has the vectors of whole texts alone, which are compared then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from limbeck.core import progress, records
from limbeck.corpus.text.text_keys import text_key
from limbeck.errors import CorpusError, ModelError
from limbeck.evaluation.compare import Amounts, Side, Text, encode_sentences, grow_pool_of
from limbeck.evaluation.passages import build_search_pairs
from limbeck.evaluation.retrieval import ROLES
from limbeck.evaluation.sentence_pairs import text_of
from limbeck.evaluation.similarity_strata import HeldOutSentence, choose_sentences, choose_texts
from limbeck.models.sentence_heads import SentenceHead
from limbeck.targets.facts import StoreFacts
from limbeck.targets.store import Store
from limbeck.targets.writer import StoreWriter, open_store

COMPARED = "compared"
"""Folder inside a store with the vectors of compared texts."""
_VECTOR = "vector"


class _Pairs(NamedTuple):
    """Pairs of texts that are compared.

    Args:
        texts: The pairs.
        roles: Role of the first and of the second text of each pair; None without roles.
    """

    texts: Sequence[tuple[str, str]]
    roles: tuple[str, str] | None


@dataclass(frozen=True)
class StoredSide(Side):
    """A teacher whose vectors are stored.

    Attributes:
        store: The folder of the teacher's store.
        facts: Facts of that store.
    """

    store: Path = Path()
    facts: StoreFacts | None = None

    def encode(
        self, texts: Sequence[tuple[str, str]], report: progress.Report, roles: tuple[str, str] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the stored vectors of the first and of the second of each pair; see `Side.encode`."""
        store = self._open_compared()
        first, second = _keys_of(_Pairs(texts, roles), self.vectors)
        is_stored = store.has(np.concatenate([first, second]))
        missing = int((~is_stored).sum())
        if missing:
            # A store is made with the sentences and passages to compare, or without any.
            if self._has_compared:
                raise ModelError(
                    f"{missing} of {2 * len(texts)} texts to compare have no stored vectors of the teacher; run "
                    "`limbeck teach` with the recipe of this run, which adds them."
                )
            raise ModelError(
                "The store has the teacher's vectors of whole texts only, not of their sentences and passages, so "
                "these cannot be compared."
            )
        return torch.from_numpy(store.read(first)[_VECTOR]), torch.from_numpy(store.read(second)[_VECTOR])

    def choose_sentences(self, texts: Sequence[Text], pairs: int, *, seed: int) -> list[HeldOutSentence]:
        """Choose sentences, or whole texts where only the vectors of these are stored; see `Side.choose_sentences`."""
        if self._has_compared:
            return super().choose_sentences(texts, pairs, seed=seed)
        return choose_texts([text_of(text) for text in texts], pairs, seed=seed)

    @property
    def _has_compared(self) -> bool:
        """Whether the vectors of compared texts are stored by themselves; a store that is made of a file has none."""
        return (self.store / COMPARED).is_dir()

    def _open_compared(self) -> Store:
        """Open the store of compared texts, or else the teacher's store itself, which has the vectors of whole texts.

        Raises:
            ModelError: for a store without vectors, or with vectors of texts that were cut elsewhere.
        """
        if not self._has_compared:
            whole_texts = Store(self.store)
            if _VECTOR not in whole_texts.facts.streams:
                raise ModelError(
                    f"The store '{self.store}' has no sentence vectors, so students cannot be compared with the "
                    "teacher."
                )
            return whole_texts
        compared = Store(self.store / COMPARED)
        stored_reading = compared.facts.model
        reading = _reading(self.max_length)
        if stored_reading != reading:
            raise ModelError(
                f"The stored vectors for the comparison are of {stored_reading}, but this run needs {reading}; run "
                "`limbeck teach` with the recipe of this run."
            )
        return compared

    def timed_model(self) -> nn.Module:
        """Refuse to time a teacher that is not there."""
        raise ModelError(
            "The teacher's outputs were read from a store, so the teacher itself was not loaded and cannot be timed."
        )

    def figures(self) -> records.ModelFigures:
        """Return the sizes of the teacher, as they were stored."""
        if self.facts is None:
            return records.ModelFigures()
        return records.ModelFigures.read(dict(self.facts.figures))


def store_compared(
    teacher: Side,
    folder: Path,
    facts: StoreFacts,
    texts: Sequence[Text] | None,
    amounts: Amounts,
    *,
    seed: int,
    report: progress.Report = progress.no_progress,
) -> int:
    """Store a teacher's vectors of the texts that `compare_models` would compare it on; known ones are kept.

    Args:
        teacher: The teacher, loaded.
        folder: The folder of the teacher's store.
        facts: Facts of that store.
        texts: Held-out texts; None for a run without text.
        amounts: How much is compared.
        seed: Seed of the choice of texts.
        report: Receives the progress of each part of the work.

    Returns:
        The number of texts.
    """
    compared = folder / COMPARED
    texts_compared = 0
    for encoded in _encode_compared(teacher, texts or (), amounts, seed, report):
        width = encoded.first.shape[1]
        facts_of_compared = StoreFacts(
            facts.teacher, facts.weights, {_VECTOR: width}, model=_reading(teacher.max_length)
        )
        store = open_store(compared, facts_of_compared)

        # A text may be in several pairs; its vector is stored once.
        keys_of_all = np.concatenate(_keys_of(encoded.pairs, teacher.vectors))
        vectors_of_all = torch.cat([encoded.first, encoded.second]).numpy()
        keys, first_places = np.unique(keys_of_all, return_index=True)
        vectors = vectors_of_all[first_places]
        texts_compared += len(keys)
        is_new = ~store.has(keys)
        with StoreWriter(compared) as writer:
            if is_new.any():
                writer.add(keys[is_new], {_VECTOR: vectors[is_new]})
    return texts_compared


class _Encoded(NamedTuple):
    """Pairs of texts with the teacher's vectors of the first and of the second of each, `[pairs, width]`."""

    pairs: _Pairs
    first: Tensor
    second: Tensor


def _encode_compared(
    teacher: Side, texts: Sequence[Text], amounts: Amounts, seed: int, report: progress.Report
) -> Iterator[_Encoded]:
    """Yield the vectors that each measure of `compare_models` reads; none for a measure that lacks texts."""
    # A measure whose texts are too few raises, and is left out here as it is in the comparison.
    if amounts.pairs > 0:
        with suppress(CorpusError):
            sentences = choose_sentences([text_of(text) for text in texts], amounts.pairs, seed=seed)
            vectors = encode_sentences(teacher, sentences, progress.named(report, "agreement, vectors of the teacher"))
            # Each sentence is a pair with itself, since all pairs of sentences may be compared.
            pairs_of_equals = _Pairs([(sentence.text, sentence.text) for sentence in sentences], roles=None)
            yield _Encoded(pairs_of_equals, vectors, vectors)
    if amounts.retrieval_pairs > 0:
        with suppress(CorpusError):
            search = build_search_pairs(texts, amounts.retrieval_pairs, seed=seed)
            pool = grow_pool_of(teacher, search, progress.named(report, "passage retrieval, vectors of the teacher"))
            yield _Encoded(_Pairs(pool.pairs, ROLES), pool.queries, pool.passages)


def _keys_of(pairs: _Pairs, vectors: str | SentenceHead) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the keys by which a store knows the first and the second text of each pair, with the prompts before them.

    Args:
        pairs: The pairs.
        vectors: How the teacher makes its vectors; a pooling alone has no prompts.
    """
    first_role, second_role = pairs.roles or (None, None)
    first_prompt = ""
    second_prompt = ""
    if isinstance(vectors, SentenceHead):
        first_prompt = vectors.sentence.prompt(first_role)
        second_prompt = vectors.sentence.prompt(second_role)
    first = [text_key(text, prompt=first_prompt) for text, _ in pairs.texts]
    second = [text_key(text, prompt=second_prompt) for _, text in pairs.texts]
    return np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)


def _reading(max_length: int) -> str:
    """Return how the teacher read texts, as the facts of a store of compared texts say it in the place of a model."""
    return f"texts cut to {max_length} tokens"
