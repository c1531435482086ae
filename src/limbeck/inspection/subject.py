"""A model under inspection with its tokenizer, and the streams of its layers.

A *stream* is a tensor `[B, L, H]` that a model computes, such as the output of a layer.

Axis letters: B batch, L tokens, n real tokens of a batch, H width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.errors import ModelError
from limbeck.models import loading, tokenizers, vocabularies
from limbeck.models.families import depth, shape_of
from limbeck.models.inference import device_of, longest_input
from limbeck.models.streams import StreamKey, Streams

_NO_LIMIT = 10**9
"""A tokenizer without a limit states a number far above this one as its limit."""


@dataclass(frozen=True)
class Subject:
    """A loaded model to look into.

    Args:
        name: As messages and pictures call it.
        model: An encoder or decoder, with or without a head; its mode and device are left as they are.
        tokenizer: Its tokenizer; left as it is.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def layers(self) -> int:
        """Number of blocks N; layer 0 is the embedding output."""
        return depth(self.model.config)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return device_of(self.model)

    @property
    def longest(self) -> int | None:
        """Most tokens of an input, special ones included; None where nothing limits it."""
        limits = [longest_input(self.model), shape_of(self.model.config).positions]
        if self.tokenizer.model_max_length < _NO_LIMIT:
            limits.append(self.tokenizer.model_max_length)
        return min((limit for limit in limits if limit is not None), default=None)


def layer_keys(model: PreTrainedModel) -> list[StreamKey]:
    """Return the streams of the output of every layer of a model, 0 to N."""
    layers = range(1, depth(model.config) + 1)
    return [StreamKey("embedding", 0), *(StreamKey("hidden", layer) for layer in layers)]


def valid_vectors(streams: Streams, keys: Sequence[StreamKey], valid: Tensor) -> Tensor:
    """Return the vectors of the real tokens of a batch, `[layers, n, H]`.

    Args:
        streams: Of the batch, `[B, L, H]` each.
        keys: The layers, in order.
        valid: Bool `[B, L]`, True for real tokens.
    """
    return torch.stack([streams[key][valid.to(streams[key].device)] for key in keys])


def load_subject(name_or_path: str | Path, *, device: torch.device | str = "cpu") -> Subject:
    """Load a model, without a head and in float32, and its tokenizer.

    Args:
        name_or_path: A folder, `package:NAME`, or a Hub name.
        device: Where to put it.

    Raises:
        ModelError: if either cannot be loaded, or the tokenizer has ids that the model does not.
    """
    tokenizer = tokenizers.load_tokenizer(name_or_path)
    model = loading.load_model(name_or_path)
    vocabularies.check_fits_model(tokenizer, shape_of(model.config).vocabulary)
    return Subject(str(name_or_path), model.to(device), tokenizer)


def check_comparable(student: Subject, teacher: Subject) -> None:
    """Refuse two models that read different tokens from the same text.

    Raises:
        ModelError: naming the first difference.
    """
    try:
        vocabularies.check_same_vocabulary(student.tokenizer, teacher.tokenizer)
    except ModelError as error:
        # The message has the form "reason; way out", and its way out is for training.
        reason = str(error).rsplit(";", 1)[0]
        raise ModelError(
            f"'{student.name}' and '{teacher.name}' cannot be compared token by token: {reason}; give a teacher with "
            "the same tokenizer."
        ) from error
