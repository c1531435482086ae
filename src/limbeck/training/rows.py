"""The rows that a stage reads: blocks, labelled rows or a stream, replaced and masked as the stage says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset
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
    word_ids,
)
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
