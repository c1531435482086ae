"""`TextLimit`: the longest text that is sent to an endpoint, in characters or in tokens of a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from transformers import PreTrainedTokenizerBase

from limbeck.errors import CorpusError
from limbeck.models.tokenizers import load_tokenizer

TooLong = Literal["refuse", "cut"]
"""What is done with a text above the limit."""


@dataclass(frozen=True)
class TextLimit:
    """The longest text that is sent.

    Args:
        most: Most characters, or most tokens.
        unit: What is counted: `characters`, or `tokens of NAME`.
        tokenizer: Counts the tokens, special ones included; None counts characters.
    """

    most: int
    unit: str = "characters"
    tokenizer: PreTrainedTokenizerBase | None = None

    def __str__(self) -> str:
        return f"{self.most:,} {self.unit}"

    def length(self, text: str) -> int:
        """Count what a text has of the unit."""
        if self.tokenizer is None:
            return len(text)
        # A tokenizer warns of texts above its own limit unless it is told that this is meant.
        return len(self.tokenizer(text, verbose=False)["input_ids"])

    def cut(self, text: str) -> str:
        """Return the beginning of a text that keeps to the limit; the whole text where it does."""
        if self.tokenizer is None:
            return text if len(text) <= self.most else text[: self.most].rstrip()
        # Cut the text where its last token ends, by the offsets of the tokens in its characters. The end of a text that
        # was cut may become other tokens, and more of them, so it is counted again.
        room = self.most - self.tokenizer.num_special_tokens_to_add()
        shortened = text
        while self.length(shortened) > self.most and room > 0:
            encoded = self.tokenizer(
                text, truncation=True, max_length=room, add_special_tokens=False, return_offsets_mapping=True
            )
            _, end = encoded["offset_mapping"][-1]
            shortened = text[:end].rstrip()
            room -= 1
        return shortened


def token_limit(most: int, tokenizer: str | PreTrainedTokenizerBase) -> TextLimit:
    """Return a limit in tokens.

    Args:
        most: Most tokens.
        tokenizer: A tokenizer, or the name of a model that has it.

    Raises:
        ModelError: for a name without a tokenizer.
        CorpusError: for a tokenizer that cannot say where in a text its tokens are, and a limit without room for text.
    """
    if isinstance(tokenizer, str):
        name = tokenizer
        tokenizer = load_tokenizer(name)
    else:
        name = tokenizer.name_or_path
    if not tokenizer.is_fast:
        raise CorpusError(
            f"The tokenizer of '{name}' does not say where in a text its tokens are, so --limit cannot count its "
            "tokens; leave --tokenizer out to let --limit count characters."
        )
    if most <= tokenizer.num_special_tokens_to_add():
        raise CorpusError(
            f"--limit {most} leaves no room for text beside the special tokens of '{name}'; give a larger --limit."
        )
    return TextLimit(most, f"tokens of {name}", tokenizer)
