"""The rows that a stage reads: blocks, labelled rows or a stream, replaced and masked as the stage says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler
from transformers import PreTrainedTokenizerBase

from limbeck.corpus import (
    Corpus,
    LabelledCorpus,
    Lane,
    MaskedTokens,
    ReplacedTokens,
    RowMix,
    StreamedCorpus,
    mask_id_of,
    padding_share,
    word_ids,
)
from limbeck.corpus.batches import group_by_length
from limbeck.corpus.streaming import Block

_HELD_OUT_ROWS = 512


class MixedRows(Dataset[dict[str, Any]]):
    """Rows of several sources, and which of them an epoch has.

    Args:
        rows: The rows.
        mix: What an epoch has.
    """

    def __init__(self, rows: Any, mix: RowMix) -> None:
        self._rows = rows
        self.mix = mix

    def set_epoch(self, epoch: int) -> None:
        """Tell rows that are masked anew in every epoch which one begins."""
        if hasattr(self._rows, "set_epoch"):
            self._rows.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> Any:
        return self._rows[key]

    def __getitems__(self, indices: list[int]) -> Any:
        """Read several rows at once, as data loaders do."""
        return self._rows.__getitems__(indices)


class StreamedRows(Dataset[dict[str, Any]]):
    """The rows of a stream: what a batch is made of, and a few rows of the beginning to see beforehand.

    As a data set it has the rows of the beginning; a trainer reads `batches` instead.

    Args:
        corpus: The stream.
        replacing: Replaces tokens of its beginning, and of any row; or None.
        masking: Masks tokens likewise, or None.
    """

    def __init__(self, corpus: StreamedCorpus, replacing: ReplacedTokens | None, masking: MaskedTokens | None) -> None:
        self.corpus = corpus
        self._replacing = replacing
        self._masking = masking
        self._beginning: Any = masking or replacing or corpus.train

    def __len__(self) -> int:
        return len(self._beginning)

    def __getitem__(self, key: Any) -> Any:
        return self._beginning[key]

    def batches(
        self, lane: Lane, *, batch_size: int, seed: int, state: dict[str, Any] | None = None
    ) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
        """Iterate over batches of rows, each with the state behind it; arguments as of `StreamedCorpus.batches`."""
        for blocks, behind in self.corpus.batches(lane, batch_size=batch_size, seed=seed, state=state):
            yield [self._row(block) for block in blocks], behind

    def _row(self, block: Block) -> dict[str, Any]:
        row: dict[str, Any] = {"input_ids": block.ids, "length": len(block.ids)}
        if self._replacing is not None:
            row = self._replacing.replace(row)
        return row if self._masking is None else self._masking.mask(row, block.number)


def training_rows(
    corpus: Corpus | LabelledCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    replace_tokens: float,
    mask_tokens: float,
    seed: int,
) -> Any:
    """Return the rows to train on.

    Args:
        corpus: The corpus; of a stream the result is `StreamedRows`.
        tokenizer: Its tokenizer.
        replace_tokens: Share of tokens replaced by random words.
        mask_tokens: Share of tokens masked, of those that are left; they become the labels.
        seed: Decides what is replaced, masked, and drawn of a mix.
    """
    rows: Any = corpus.train
    replacing = masking = None
    if replace_tokens > 0:
        special = tokenizer.all_special_ids
        rows = replacing = ReplacedTokens(rows, replace_tokens, words=word_ids(tokenizer), special=special, seed=seed)
    if mask_tokens > 0:
        rows = masking = _masked(rows, tokenizer, mask_tokens, seed)
    if isinstance(corpus, StreamedCorpus):
        return StreamedRows(corpus, replacing, masking)
    mix = corpus.row_mix(seed)
    return rows if mix is None else MixedRows(rows, mix)


def held_out_rows(
    corpus: Corpus | LabelledCorpus, tokenizer: PreTrainedTokenizerBase, *, mask_tokens: float, seed: int
) -> Any:
    """Return up to 512 held-out rows: never replaced, and always masked alike."""
    rows = corpus.held_out.select(range(min(_HELD_OUT_ROWS, len(corpus.held_out))))
    return rows if mask_tokens == 0 else _masked(rows, tokenizer, mask_tokens, seed)


def _masked(rows: Any, tokenizer: PreTrainedTokenizerBase, share: float, seed: int) -> MaskedTokens:
    return MaskedTokens(
        rows,
        share,
        mask_id=mask_id_of(tokenizer),
        words=word_ids(tokenizer),
        special=tokenizer.all_special_ids,
        seed=seed,
    )


# Sampling blocks so that those of a batch have nearly the same length, in an order that a resumed run repeats.


class LengthGroupedSampler(Sampler[int]):
    """Yields every index once an epoch, or those that a mix draws, batch by batch of similar length, in random order.

    Unlike `transformers.trainer_pt_utils.LengthGroupedSampler` the order is a function of seed and epoch alone, so a
    run resumed in its second epoch meets the rows that it would have met.

    Args:
        lengths: Length of every row in tokens.
        batch_size: Rows that are padded together, over all ranks.
        seed: Seed of the order.
        mix: Which rows an epoch has; without it, every row once.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int, mix: RowMix | None = None) -> None:
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._batch_size = batch_size
        self._seed = seed
        self._mix = mix
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        for batch in self._batches(self._epoch):
            yield from batch.tolist()

    def drawn(self, rows: int) -> list[int]:
        """Return how many of the first rows, over epochs, are of each source of the mix.

        Args:
            rows: How many rows were trained on.
        """
        assert self._mix is not None
        whole, rest = divmod(rows, len(self))
        counts = np.sum([self._mix.counts(epoch) for epoch in range(whole)] or [[0]], axis=0)
        begun = np.concatenate([*self._batches(whole), np.empty(0, np.int64)])[:rest]
        return (counts + np.asarray(self._mix.sources(begun))).tolist()

    def _batches(self, epoch: int) -> list[NDArray[Any]]:
        generator = np.random.default_rng([self._seed, epoch])
        if self._mix is None:
            order = generator.permutation(len(self._lengths))
        else:
            order = generator.permutation(self._mix.draw(epoch))
        return group_by_length(order, self._lengths, self._batch_size, generator)


def make_sampler(dataset: Any, batch_size: int, seed: int) -> LengthGroupedSampler:
    """Make the sampler of some rows, which may be mixed.

    Args:
        dataset: Rows with the column `length`; those of `limbeck.training.data.MixedRows` know their mix.
        batch_size: Rows that are padded together, over all ranks.
        seed: Seed of the order.
    """
    return LengthGroupedSampler(dataset["length"][:], batch_size, seed, getattr(dataset, "mix", None))


def grouped_padding_share(lengths: Sequence[int], batch_size: int, seed: int = 0) -> float:
    """Share of positions that are padding when batches are drawn by `LengthGroupedSampler`; 0 to 1."""
    return padding_share([lengths[index] for index in LengthGroupedSampler(lengths, batch_size, seed)], batch_size)
