"""The rows that a stage reads: blocks or labelled rows, replaced and masked as the stage says."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerBase

from limbeck.corpus import Corpus, LabelledCorpus, MaskedTokens, ReplacedTokens, mask_id_of, word_ids

_HELD_OUT_ROWS = 512


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
        corpus: The corpus.
        tokenizer: Its tokenizer.
        replace_tokens: Share of tokens replaced by random words.
        mask_tokens: Share of tokens masked, of those that are left; they become the labels.
        seed: Decides what is replaced and masked.
    """
    rows = corpus.train
    if replace_tokens > 0:
        special = tokenizer.all_special_ids
        rows = ReplacedTokens(rows, replace_tokens, words=word_ids(tokenizer), special=special, seed=seed)
    return _masked(rows, tokenizer, mask_tokens, seed)


def held_out_rows(
    corpus: Corpus | LabelledCorpus, tokenizer: PreTrainedTokenizerBase, *, mask_tokens: float, seed: int
) -> Any:
    """Return up to 512 held-out rows: never replaced, and always masked alike."""
    rows = corpus.held_out.select(range(min(_HELD_OUT_ROWS, len(corpus.held_out))))
    return _masked(rows, tokenizer, mask_tokens, seed)


def _masked(rows: Any, tokenizer: PreTrainedTokenizerBase, share: float, seed: int) -> Any:
    if share == 0:
        return rows
    return MaskedTokens(
        rows,
        share,
        mask_id=mask_id_of(tokenizer),
        words=word_ids(tokenizer),
        special=tokenizer.all_special_ids,
        seed=seed,
    )
