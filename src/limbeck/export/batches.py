"""Sample text in batches, on which an export is compared with its source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from limbeck.corpus.collating import PadCollator
from limbeck.models import tokenizers
from limbeck.models.sample_texts import Text

BATCH_SIZE = 8
_LONG_ENOUGH = 64
"""Rows above this many tokens go in separate batches, so that a long text does not pad all the others."""


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
        tokenizer: Left as it is: padding and truncation fixed in its file are ignored.
        texts: Texts and pairs.
        names: Of the inputs.
        longest: In tokens, special ones included.
    """
    rows = []
    for text in texts:
        found = tokenizers.encode_texts(tokenizer, [text], truncation=True, max_length=longest)
        length = len(found["input_ids"][0])
        known = {"attention_mask": [1] * length} | {name: list(ids[0]) for name, ids in found.items()}
        rows.append({name: known.get(name, [0] * length) for name in names})
    return rows


def make_batches(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Text], names: Sequence[str], longest: int, *, left: bool = True
) -> list[Batch]:
    """Make the batches of a comparison: each text once, a few again in other batches, which must not change outputs.

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
    rows: Sequence[tuple[Text, dict[str, list[int]]]], padding: int, *, width: int = 1, left: bool = False
) -> Batch:
    collate = PadCollator(padding, "left" if left else "right", multiple_of=width)
    filled = collate([row for _, row in rows])
    inputs = {name: filled.get(name, torch.zeros_like(filled["input_ids"])) for name in rows[0][1]}
    return Batch(tuple(text for text, _ in rows), inputs)


Runner: TypeAlias = Callable[[Batch], dict[str, Tensor]]
"""Runs a model on a batch: output name to float32 tensor on the CPU."""
