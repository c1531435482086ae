"""Sample text in batches, on which an export is compared with its source.

A *row* is a text, or a pair of texts, as token ids. Real tokens are all that are not padding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from limbeck.corpus.batches.collating import PadCollator
from limbeck.models import tokenizers
from limbeck.models.sample_texts import Text

BATCH_SIZE = 8
"""Texts of a batch."""
_LONGEST_SHORT_ROW = 64
"""Most tokens of a short row; long rows have batches of their own, so that they do not pad the short ones."""
_MORE_PADDING = 5
"""Columns of padding that are added to a batch beyond those that it needs."""


@dataclass(frozen=True)
class Batch:
    """Rows that a model reads at once.

    Attributes:
        texts: The rows' texts.
        inputs: The model's inputs by name, `[B, L]` int64 each.
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
        names: Names of the model's inputs; an input that the tokenizer does not make is zero.
        longest: Most tokens of a text, special ones included.
    """
    rows = []
    # Copying a tokenizer of a large vocabulary takes long, so it is done once.
    plain = tokenizers.plain_tokenizer(tokenizer)
    for text in texts:
        encoded = plain([text], padding=False, verbose=False, truncation=True, max_length=longest)
        length = len(encoded["input_ids"][0])
        # The outputs of the tokenizer replace these defaults. Without padding, a mask is all ones.
        inputs = dict.fromkeys(names, [0] * length)
        inputs["attention_mask"] = [1] * length
        for name, output in encoded.items():
            inputs[name] = list(output[0])  # A list of one text was tokenised.
        # The tokenizer may make more outputs than the model has inputs.
        rows.append({name: inputs[name] for name in names})
    return rows


def make_batches(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Text], names: Sequence[str], longest: int, *, left: bool = True
) -> list[Batch]:
    """Make the batches of a comparison: each text once, and a few again in other batches.

    A text's outputs must not depend on its batch: on the texts beside it, and on the padding.

    Args:
        tokenizer: The tokenizer, as in `tokenise`.
        texts: A text without a single token (an empty one, without special tokens) is left out.
        names: Names of the inputs.
        longest: Most tokens of a text.
        left: Whether one batch is padded on the left. A library that pads by itself does so on the right only.
    """
    inputs_of_texts = tokenise(tokenizer, texts, names, longest)
    rows = [_Row(text, inputs) for text, inputs in zip(texts, inputs_of_texts, strict=True)]
    rows = [row for row in rows if row.length > 0]
    if not rows:
        return []
    padding_id = int(tokenizer.pad_token_id or 0)

    # Each text once.
    short = [row for row in rows if row.length <= _LONGEST_SHORT_ROW]
    long = [row for row in rows if row.length > _LONGEST_SHORT_ROW]
    batches: list[Batch] = []
    for group in (short, long):
        starts = range(0, len(group), BATCH_SIZE)
        batches += [_pad(group[start : start + BATCH_SIZE], padding_id) for start in starts]

    # The shortest text and the one of median length each alone, without padding.
    by_length = sorted(rows, key=lambda row: row.length)
    shortest = by_length[0]
    middle = by_length[len(by_length) // 2]
    batches.append(_pad([shortest], padding_id))
    if middle is not shortest:
        batches.append(_pad([middle], padding_id))

    # A few short texts with more padding than they need, and with padding on the left.
    few = short[: BATCH_SIZE // 2]
    if few:
        width = max(row.length for row in few) + _MORE_PADDING
        batches.append(_pad(few, padding_id, width=min(longest, width)))
        if left:
            batches.append(_pad(few, padding_id, side="left"))
    return batches


class _Row(NamedTuple):
    """A text and its inputs."""

    text: Text
    inputs: dict[str, list[int]]

    @property
    def length(self) -> int:
        return len(self.inputs["input_ids"])


def _pad(rows: Sequence[_Row], padding_id: int, *, width: int = 1, side: str = "right") -> Batch:
    """Make a batch of rows, padded on a side to the least multiple of `width` that holds them all."""
    collate = PadCollator(padding_id, side, multiple_of=width)
    padded = collate([row.inputs for row in rows])
    zeros = torch.zeros_like(padded["input_ids"])
    inputs = {name: padded.get(name, zeros) for name in rows[0].inputs}
    return Batch(tuple(row.text for row in rows), inputs)


Runner: TypeAlias = Callable[[Batch], dict[str, Tensor]]
"""Runs a model on a batch: output name to float32 tensor on the CPU."""
