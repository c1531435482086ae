"""`SequenceEncoder`: labelled texts and pairs to token ids, as the tokenizer itself encodes them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from limbeck.corpus.labelled_examples import Example
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

TOKEN_TYPES = "token_type_ids"


class EncodedRows(NamedTuple):
    """Rows of tokens, column by column.

    Args:
        input_ids: Ids of each row, special tokens included.
        labels: Label of each row.
        token_type_ids: Segment of each token of each row; `None` where the model has no segments.
    """

    input_ids: list[list[int]]
    labels: list[Any]
    token_type_ids: list[list[int]] | None


class RowEncoder(Protocol):
    """Encodes labelled rows; it can be sent to another process."""

    def encode(self, examples: Sequence[Example], report: SourceReport) -> EncodedRows:
        """Encode some rows; `report` is told what was cut or left out."""


class SequenceEncoder:
    """Encodes single texts or pairs, cutting them to a length, the longer of a pair first.

    Unlike the blocks of a text corpus, text that spells a special token ("[SEP]") is encoded as the tokenizer is set to
    encode it: the teacher reads what it was fine-tuned on.

    Args:
        tokenizer: A `transformers` tokenizer; it is not changed.
        length: Most tokens in a row, special tokens included.
        paired: Whether the rows are pairs.

    Raises:
        CorpusError: if no token of each text fits between the special ones.
    """

    def __init__(self, tokenizer: Any, length: int, paired: bool) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)  # Every call sets its truncation.
        special = tokenizer.num_special_tokens_to_add(pair=paired)
        if length < special + (2 if paired else 1):
            raise CorpusError(
                f"length is {length}, but this tokenizer puts {special} special tokens in a row: too short."
            )
        self._length = length
        self._room = length - special
        self._paired = paired
        self._typed = TOKEN_TYPES in tokenizer.model_input_names

    def encode(self, examples: Sequence[Example], report: SourceReport) -> EncodedRows:
        """Return ids and labels of each example, in order.

        Args:
            examples: The rows.
            report: Receives the rows that were cut.
        """
        ids, types, was_cut = (self._encode if self._tokenizer.is_fast else self._encode_slowly)(examples)
        for example, cut in zip(examples, was_cut, strict=True):
            if cut:
                report.note(f"row cut to {self._length} tokens", repr(example.text[:40]))
        return EncodedRows(ids, [example.label for example in examples], types if self._typed else None)

    def _encode(self, examples: Sequence[Example]) -> tuple[list[list[int]], list[list[int]], list[bool]]:
        """Return ids and segments of each example, and whether it was cut."""
        encoded = self._tokenizer(
            [example.text for example in examples],
            [example.pair for example in examples] if self._paired else None,
            padding=False,
            truncation="longest_first",
            max_length=self._length,
            return_attention_mask=False,
            return_token_type_ids=self._typed,
        )
        was_cut = [bool(encoding.overflowing) for encoding in encoded.encodings]
        return encoded["input_ids"], encoded[TOKEN_TYPES] if self._typed else [], was_cut

    def _encode_slowly(self, examples: Sequence[Example]) -> tuple[list[list[int]], list[list[int]], list[bool]]:
        """Do the same with a tokenizer in Python, which would log a warning for every pair that it cuts."""
        all_ids, all_types, was_cut = [], [], []
        for example in examples:
            texts = [example.text, example.pair or ""] if self._paired else [example.text]
            whole: list[list[int]] = self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
            kept = longest_first([len(ids) for ids in whole], self._room)
            left = self._tokenizer.truncation_side == "left"
            parts = [ids[len(ids) - n :] if left else ids[:n] for ids, n in zip(whole, kept, strict=True)]
            encoded = self._tokenizer.prepare_for_model(*parts, return_token_type_ids=True, verbose=False)
            all_ids.append(encoded["input_ids"])
            all_types.append(encoded[TOKEN_TYPES])
            was_cut.append(parts != whole)
        return all_ids, all_types, was_cut


def longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """Return how much of one or two texts is kept: the longer is cut until they fit, or are equal; then both.

    Args:
        lengths: Their lengths in tokens.
        room: Tokens that both may have together.
    """
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    shorter = min(*lengths, room // 2)
    return [shorter, room - shorter] if lengths[0] <= lengths[1] else [room - shorter, shorter]
