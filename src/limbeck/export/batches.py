"""Sample text in batches, on which an export is compared with its source.

A *row* is a text, or a pair of texts, as token ids. Real tokens are all that are not padding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from tokenizers import Encoding
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
        word_starts: Bool `[B, L]`, True for the first token of each word, see `mark_words`. A slow tokenizer does not
            tell the words: then it is True for all tokens but special ones and padding.
        has_words: Whether the words are known.
    """

    texts: tuple[Text, ...]
    inputs: dict[str, Tensor]
    word_starts: Tensor
    has_words: bool

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


def mark_words(tokenizer: PreTrainedTokenizerBase, texts: Sequence[Text], longest: int) -> list[list[bool]]:
    """Return for each token of each text whether it is the first of a word, by which a word is tagged.

    Words have white space between them, as in the texts of tagged rows. A slow tokenizer does not tell the characters
    of a token: then all tokens but special ones count.

    Args:
        tokenizer: The tokenizer, as in `tokenise`.
        texts: Texts and pairs.
        longest: Most tokens of a text, special ones included.
    """
    marks = []
    plain = tokenizers.plain_tokenizer(tokenizer)
    for text in texts:
        encoded = plain([text], padding=False, verbose=False, truncation=True, max_length=longest)
        if encoded.is_fast:
            marks.append(_first_tokens(encoded.encodings[0], text))
        else:
            special = plain.get_special_tokens_mask(encoded["input_ids"][0], already_has_special_tokens=True)
            marks.append([not is_special for is_special in special])
    return marks


def _first_tokens(encoding: Encoding, text: Text) -> list[bool]:
    """Return for each token of a text, or of a pair, whether it is the first of a word.

    Args:
        encoding: The tokens.
        text: The text or pair.
    """
    parts = (text,) if isinstance(text, str) else text
    # The places, each a part and a character, of which a token was met. A letter of several bytes may be several tokens
    # with the same characters, of which only the first begins the word.
    places_met: set[tuple[int, int]] = set()
    marks = []
    for number, (start, end) in zip(encoding.sequence_ids, encoding.offsets, strict=True):
        is_first = False
        # A special token is in no part.
        if number is not None:
            part = parts[number]
            # Some tokens begin with the space before their word, or are that space.
            token = part[start:end]
            place = start + len(token) - len(token.lstrip())
            is_first = _begins_word(part, place) and (number, place) not in places_met
            places_met.add((number, place))
        marks.append(is_first)
    return marks


def _begins_word(text: str, place: int) -> bool:
    """Return whether a word begins at a place: a character there, and a space or the beginning of the text before."""
    if place >= len(text) or text[place].isspace():
        return False
    return place == 0 or text[place - 1].isspace()


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
    marks_of_texts = mark_words(tokenizer, texts, longest)
    rows = [_Row(*row) for row in zip(texts, inputs_of_texts, marks_of_texts, strict=True)]
    rows = [row for row in rows if row.length > 0]
    if not rows:
        return []
    pad = partial(_pad, padding_id=int(tokenizer.pad_token_id or 0), has_words=tokenizer.is_fast)

    # Each text once.
    short = [row for row in rows if row.length <= _LONGEST_SHORT_ROW]
    long = [row for row in rows if row.length > _LONGEST_SHORT_ROW]
    batches: list[Batch] = []
    for group in (short, long):
        starts = range(0, len(group), BATCH_SIZE)
        batches += [pad(group[start : start + BATCH_SIZE]) for start in starts]

    # The shortest text and the one of median length each alone, without padding.
    by_length = sorted(rows, key=lambda row: row.length)
    shortest = by_length[0]
    middle = by_length[len(by_length) // 2]
    batches.append(pad([shortest]))
    if middle is not shortest:
        batches.append(pad([middle]))

    # A few short texts with more padding than they need, and with padding on the left.
    few = short[: BATCH_SIZE // 2]
    if few:
        width = max(row.length for row in few) + _MORE_PADDING
        batches.append(pad(few, width=min(longest, width)))
        if left:
            batches.append(pad(few, side="left"))
    return batches


class _Row(NamedTuple):
    """A text, its inputs, and whether each token is the first of a word."""

    text: Text
    inputs: dict[str, list[int]]
    marks: list[bool]

    @property
    def length(self) -> int:
        return len(self.inputs["input_ids"])


def _pad(rows: Sequence[_Row], padding_id: int, *, has_words: bool, width: int = 1, side: str = "right") -> Batch:
    """Make a batch of rows, padded on a side to the least multiple of `width` that holds them all."""
    collate = PadCollator(padding_id, side, multiple_of=width)
    padded = collate([row.inputs for row in rows])
    zeros = torch.zeros_like(padded["input_ids"])
    inputs = {name: padded.get(name, zeros) for name in rows[0].inputs}
    # Padding is no word.
    word_starts = torch.zeros_like(zeros, dtype=torch.bool)
    for number, row in enumerate(rows):
        real_tokens = inputs["attention_mask"][number].bool()
        word_starts[number, real_tokens] = torch.tensor(row.marks)
    return Batch(tuple(row.text for row in rows), inputs, word_starts, has_words)


Runner: TypeAlias = Callable[[Batch], dict[str, Tensor]]
"""Runs a model on a batch: output name to float32 tensor on the CPU."""
