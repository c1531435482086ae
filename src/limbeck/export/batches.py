"""Batches of sample text: texts alone, in rows of different lengths, and padded on either side."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from limbeck.export.sample_text import Text

BATCH_SIZE = 8
_LONG_ENOUGH = 64
"""Rows above this many tokens go in batches of their own, so that a long text does not pad all the others."""


@dataclass(frozen=True)
class Batch:
    """Rows that a model reads at once.

    Attributes:
        texts: The rows' texts.
        inputs: `[B, L]` int64 each, by name.
    """

    texts: tuple[Text, ...]
    inputs: dict[str, Tensor]

    @property
    def valid(self) -> Tensor:
        """Bool `[B, L]`, True for real tokens."""
        return self.inputs["attention_mask"].bool()


def tokenise(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Text], names: Sequence[str], longest: int
) -> list[dict[str, list[int]]]:
    """Turn each text into the model's inputs, cut to `longest` tokens, never padded.

    Args:
        tokenizer: Left as it is: what its file fixes of padding and truncation is ignored.
        texts: Texts and pairs.
        names: Of the inputs.
        longest: In tokens, special ones included.
    """
    own = copy.deepcopy(tokenizer)
    backend = getattr(own, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()
    rows = []
    for text in texts:
        first, second = (text, None) if isinstance(text, str) else text
        found: Any = own(first, second, truncation=True, max_length=longest, padding=False)
        length = len(found["input_ids"])
        missing = {"attention_mask": [1] * length}
        rows.append({name: list(found.get(name) or missing.get(name, [0] * length)) for name in names})
    return rows


def make_batches(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Text], names: Sequence[str], longest: int, *, left: bool = True
) -> list[Batch]:
    """Make the batches of a comparison: every text in one of them, and a few in another company again.

    Args:
        tokenizer: As in `tokenise`.
        texts: Those without a single token (an empty one, without special tokens) are left out.
        names: Of the inputs.
        longest: In tokens.
        left: Have a batch that is padded on the left too, which changes the outputs of models that count positions
            from there.
    """
    rows = [
        (text, row)
        for text, row in zip(texts, tokenise(tokenizer, texts, names, longest), strict=True)
        if row["input_ids"]
    ]
    short = [row for row in rows if len(row[1]["input_ids"]) <= _LONG_ENOUGH]
    long = [row for row in rows if len(row[1]["input_ids"]) > _LONG_ENOUGH]
    padding = int(tokenizer.pad_token_id or 0)
    batches = [
        _padded(group[start : start + BATCH_SIZE], padding)
        for group in (short, long)
        for start in range(0, len(group), BATCH_SIZE)
    ]
    by_length = sorted(rows, key=lambda row: len(row[1]["input_ids"]))
    alone = {id(row): row for row in (by_length[0], by_length[len(by_length) // 2])} if rows else {}
    batches += [_padded([row], padding) for row in alone.values()]
    few = short[: BATCH_SIZE // 2]
    if few:
        widest = max(len(row["input_ids"]) for _, row in few)
        batches.append(_padded(few, padding, width=min(longest, widest + 5)))
        batches += [_padded(few, padding, left=True)] if left else []
    return batches


def _padded(
    rows: Sequence[tuple[Text, dict[str, list[int]]]], padding: int, *, width: int = 0, left: bool = False
) -> Batch:
    widest = max(width, *(len(row["input_ids"]) for _, row in rows))
    inputs = {}
    for name in rows[0][1]:
        filled = torch.full((len(rows), widest), padding if name == "input_ids" else 0, dtype=torch.int64)
        for index, (_, row) in enumerate(rows):
            values = torch.tensor(row[name], dtype=torch.int64)
            place = slice(widest - len(values), widest) if left else slice(0, len(values))
            filled[index, place] = values
        inputs[name] = filled
    return Batch(tuple(text for text, _ in rows), inputs)
