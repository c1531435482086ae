"""The padding token, which fills up short rows of a batch, in a model's configuration and in its tokenizer."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from limbeck.core.kinds import kind_of
from limbeck.errors import ModelError
from limbeck.models.families import family_of
from limbeck.models.heads import Head


def set_padding(model: PreTrainedModel, tokenizer: Any) -> None:
    """Set the padding token in a model's configuration, in place, where it has none.

    Heads of decoders need it: they read the last token before the padding.
    """
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def check_padding(name: str, tokenizer: Any) -> None:
    """Refuse a tokenizer without a padding token: rows of several lengths could not share a batch.

    Args:
        name: The model, as the user named it.
        tokenizer: The tokenizer of the model.

    Raises:
        ModelError: if it has none.
    """
    if tokenizer.pad_token_id is None:
        raise ModelError(
            f"The tokenizer of '{name}' has no padding token; set its pad_token, for example to its eos_token, and "
            "save the tokenizer again."
        )


def check_head_padding(name: str, model: PreTrainedModel, head: Head | None, tokenizer: Any) -> None:
    """Refuse a decoder with a head for whole texts without a padding token, and set its tokenizer's where it lacks one.

    Such a head reads the last token of each row, which is found only before padding that has a token.

    Args:
        name: The model, as the user named it.
        model: The model; the padding token is set in its configuration, in place.
        head: Its head, or None.
        tokenizer: Its tokenizer.

    Raises:
        ModelError: if neither has one.
    """
    reads_last_token = family_of(model.config).causal and kind_of(head).has_labels and not kind_of(head).of_tokens
    if not reads_last_token:
        return
    set_padding(model, tokenizer)
    if model.config.pad_token_id is None:
        check_padding(name, tokenizer)
