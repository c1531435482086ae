"""A model under inspection with its tokenizer, texts for it, and their batches of token ids.

Axis letters: B batch, L tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.yaml import read_document
from limbeck.corpus.files.small_files import read_texts as read_all_texts
from limbeck.errors import CorpusError, ModelError
from limbeck.models import loading, tokenizers, vocabularies
from limbeck.models.families import depth, shape_of
from limbeck.models.inference import device_of, longest_input
from limbeck.models.streams import StreamKey, Streams


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
        """Tokens it can take, special ones included; None where nothing limits it."""
        limits = longest_input(self.model), shape_of(self.model.config).positions, self.tokenizer.model_max_length
        # A tokenizer without a limit states an astronomical one.
        return min((limit for limit in limits if limit is not None and limit < 10**9), default=None)


def layer_keys(model: PreTrainedModel) -> list[StreamKey]:
    """Return the streams of the output of every layer of a model, 0 to N."""
    return [
        StreamKey("embedding", 0),
        *(StreamKey("hidden", layer) for layer in range(1, depth(model.config) + 1)),
    ]


def valid_vectors(streams: Streams, keys: Sequence[StreamKey], valid: Tensor) -> Tensor:
    """Return the vectors of the real tokens, `[layers, n, H]`."""
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
        reason = str(error).rsplit(";", 1)[0]
        raise ModelError(
            f"'{student.name}' and '{teacher.name}' cannot be compared token by token: {reason}; give a teacher with "
            "the same tokenizer."
        ) from error


class TokenRows(NamedTuple):
    """Texts as token ids.

    Args:
        ids: One row a text, special tokens included.
        cut: Number of texts that were cut to the limit.
    """

    ids: list[list[int]]
    cut: int


def tokenise(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *limits: int | None) -> TokenRows:
    """Turn texts into rows of token ids, special tokens kept; texts without a token are left out.

    Args:
        tokenizer: Left as it is.
        texts: Any number.
        limits: Most tokens of a row, as the user and each model have it; the lowest counts, None is none.

    Raises:
        CorpusError: if not one token is left.
    """
    limit = min(limit for limit in limits if limit is not None)
    whole: list[list[int]] = tokenizers.encode_texts(tokenizer, texts)["input_ids"]
    rows = tokenizers.encode_texts(tokenizer, texts, truncation=True, max_length=limit)["input_ids"]
    filled_rows = [row for row in rows if row]
    if not filled_rows:
        raise CorpusError("The texts hold no tokens; give a file with one sentence or paragraph per line.")
    return TokenRows(filled_rows, sum(len(row) > limit for row in whole))


_FILE = Path(__file__).with_name("sentences.yaml")
SENTENCES: tuple[str, ...] = tuple(read_document(_FILE, f"'{_FILE}'", "install limbeck again."))
"""Texts to inspect models on where none are given."""


def read_texts(path: Path | str | None, limit: int) -> tuple[str, ...]:
    """Read texts, one a line; blank lines are skipped.

    Args:
        path: A UTF-8 file, or None for the sentences that come along.
        limit: Most texts, taken evenly over the file.

    Raises:
        CorpusError: if the file cannot be read, or holds no text.
    """
    texts = list(SENTENCES) if path is None else read_all_texts(Path(path))
    taken = min(limit, len(texts))
    return tuple(texts[index * len(texts) // taken] for index in range(taken))
