"""From texts to batches of token ids: unpadded rows first, batches of similar length then.

Axis letters: B batch, L tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

from limbeck.core.progress import Count, Report, quietly
from limbeck.corpus import PadCollator
from limbeck.errors import CorpusError

BATCH_SIZE = 16


class TokenRows(NamedTuple):
    """Texts as token ids.

    Args:
        ids: One row a text, special tokens included.
        cut: How many of them were cut to the limit.
    """

    ids: list[list[int]]
    cut: int


class Batch(NamedTuple):
    """A padded batch.

    Args:
        rows: Which rows it holds, by their place in what was batched.
        inputs: `input_ids` and `attention_mask`, `[B, L]`, padded on the right.
        valid: Bool `[B, L]`, on the CPU: True for real tokens.
    """

    rows: list[int]
    inputs: dict[str, Tensor]
    valid: Tensor


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any) -> BatchEncoding:
    """Tokenise texts, whatever padding or cutting the tokenizer's file has fixed; the tokenizer stays as it is."""
    # A call takes both off the fast tokenizer itself (all-MiniLM-L6-v2's file fixes them to 128 tokens): use a copy.
    own = copy.deepcopy(tokenizer)
    return own(list(texts), padding=False, return_attention_mask=False, verbose=False, **options)


def tokenise(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], limit: int) -> TokenRows:
    """Turn texts into rows of at most `limit` tokens, special tokens kept; texts without a token are left out.

    Raises:
        CorpusError: if not one token is left.
    """
    rows: list[list[int]] = encode(tokenizer, texts)["input_ids"]
    long = [index for index, row in enumerate(rows) if len(row) > limit]
    if long:
        cut = encode(tokenizer, [texts[index] for index in long], truncation=True, max_length=limit)["input_ids"]
        for index, row in zip(long, cut, strict=True):
            rows[index] = row
    kept = [row for row in rows if row]
    if not kept:
        raise CorpusError("The texts hold no token; give a file with one sentence or paragraph a line.")
    return TokenRows(kept, len(long))


def batches(
    rows: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    device: torch.device,
    batch_size: int = BATCH_SIZE,
    report: Report = quietly,
    what: str = "Reading",
) -> Iterator[Batch]:
    """Yield rows in batches of similar length, the longest first.

    Args:
        rows: Token ids, none empty.
        tokenizer: For the padding id.
        device: Where the inputs go.
        batch_size: Rows a batch.
        report: Is told the share of tokens that are done.
        what: What it is told.
    """
    # Padding is masked wherever it is, so that any id will do for a tokenizer without one.
    collate = PadCollator(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0)
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    total, done = sum(map(len, rows)), 0
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        report(done / total, what, Count(done, "tokens"))
        inputs = collate([{"input_ids": rows[index]} for index in chosen])
        valid = inputs["attention_mask"].bool()
        yield Batch(chosen, {name: tensor.to(device) for name, tensor in inputs.items()}, valid)
        done += int(valid.sum())
    report(1.0, what, Count(total, "tokens"))


def shortest_limit(length: int, *limits: int | None) -> int:
    """Return the tokens a row may have: what was asked for, lowered to what every model can take."""
    return min([length, *(limit for limit in limits if limit is not None)])
