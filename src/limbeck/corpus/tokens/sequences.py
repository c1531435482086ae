"""`SequenceEncoder`: the tokens of rows with one text or two, cut to a length."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES, EncodedRows
from limbeck.errors import CorpusError

_SHOWN_CHARACTERS = 40
"""Most characters of foreign text in a message."""


class _Tokens(NamedTuple):
    """Tokens of some rows.

    Args:
        ids: Ids of each row.
        types: Segment of each token of each row; empty where the model has no segments.
        was_cut: Whether each row was cut.
    """

    ids: list[list[int]]
    types: list[list[int]]
    was_cut: list[bool]


class SequenceEncoder:
    """Encodes single texts or pairs, cutting them to a length, the longer of a pair first.

    Rows are encoded as the tokenizer does by default, as in the teacher's fine-tuning. So text that spells a special
    token ("[SEP]") may become that token, unlike in the blocks of a text corpus.

    Args:
        tokenizer: A `transformers` tokenizer; it is not changed.
        length: Most tokens in a row, special tokens included.
        paired: Whether the rows are pairs.

    Raises:
        CorpusError: if no token of each text fits between the special ones.
    """

    def __init__(self, tokenizer: Any, length: int, paired: bool) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)  # A call changes the truncation of the tokenizer.
        special_tokens = tokenizer.num_special_tokens_to_add(pair=paired)
        fewest_tokens = 2 if paired else 1  # One token of each text.
        if length < special_tokens + fewest_tokens:
            raise CorpusError(
                f"length is {length}, which is too short: this tokenizer puts {special_tokens} special tokens in a "
                "row; give a larger 'length'."
            )
        self._length = length
        self._room = length - special_tokens
        self._paired = paired
        self._has_types = TOKEN_TYPES in tokenizer.model_input_names

    def encode(self, rows: Sequence[LabelledRow], report: SourceReport) -> EncodedRows:
        """Return ids and labels of each row, in order.

        Args:
            rows: All single, or all pairs.
            report: Receives the rows that were cut.
        """
        tokens = self._encode_fast(rows) if self._tokenizer.is_fast else self._encode_slowly(rows)
        for row, was_cut in zip(rows, tokens.was_cut, strict=True):
            if was_cut:
                report.note(f"row cut to {self._length} tokens", repr(row.text[:_SHOWN_CHARACTERS]))
        return EncodedRows(
            input_ids=tokens.ids,
            labels=[row.label for row in rows],
            token_type_ids=tokens.types if self._has_types else None,
        )

    def _encode_fast(self, rows: Sequence[LabelledRow]) -> _Tokens:
        """Encode with a tokenizer of the `tokenizers` library, which cuts the rows itself."""
        encoded = self._tokenizer(
            [row.text for row in rows],
            [row.pair for row in rows] if self._paired else None,
            padding=False,
            truncation="longest_first",
            max_length=self._length,
            return_attention_mask=False,
            return_token_type_ids=self._has_types,
        )
        types = encoded[TOKEN_TYPES] if self._has_types else []
        was_cut = [bool(encoding.overflowing) for encoding in encoded.encodings]
        return _Tokens(ids=encoded["input_ids"], types=types, was_cut=was_cut)

    def _encode_slowly(self, rows: Sequence[LabelledRow]) -> _Tokens:
        """Encode with a tokenizer in Python, which would log a warning for every pair that it cuts itself."""
        tokens = _Tokens(ids=[], types=[], was_cut=[])
        cuts_beginnings = self._tokenizer.truncation_side == "left"
        for row in rows:
            texts = [row.text, row.pair or ""] if self._paired else [row.text]
            whole: list[list[int]] = self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
            # As a fast tokenizer does: of a pair that is too long, the longer text is cut first.
            lengths = longest_first([len(ids) for ids in whole], self._room)
            parts = []
            for ids, length in zip(whole, lengths, strict=True):
                start = len(ids) - length if cuts_beginnings else 0
                parts.append(ids[start : start + length])
            encoded = self._tokenizer.prepare_for_model(*parts, return_token_type_ids=True, verbose=False)
            tokens.ids.append(encoded["input_ids"])
            tokens.types.append(encoded[TOKEN_TYPES])
            tokens.was_cut.append(parts != whole)
        return tokens


def longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """Return the lengths to which one or two texts are cut so that they fit.

    Tokens are taken from the longer text until both fit together, or are equally long. Then both are cut to half of the
    room.

    Args:
        lengths: Lengths of the texts, in tokens.
        room: Tokens that they may have together.
    """
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    # The shorter text stays whole unless it has more than half of the room. The other gets the rest.
    length_of_shorter = min(first, second, room // 2)
    length_of_longer = room - length_of_shorter
    if first <= second:
        return [length_of_shorter, length_of_longer]
    return [length_of_longer, length_of_shorter]
