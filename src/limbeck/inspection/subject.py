"""A model under inspection with its tokenizer, texts for it, and their batches of token ids.

Axis letters: B batch, L tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.progress import Count, Report, no_progress
from limbeck.corpus.batches import padded_batches
from limbeck.corpus.opening import read_texts as read_all_texts
from limbeck.errors import CorpusError, ModelError
from limbeck.evaluation.inference import device_of, longest_input
from limbeck.models import loading
from limbeck.models.families import depth, shape_of
from limbeck.models.streams import StreamKey


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
        limits = [longest_input(self.model), shape_of(self.model.config).positions]
        # A tokenizer without a limit states an astronomical one.
        limits += [self.tokenizer.model_max_length if self.tokenizer.model_max_length < 10**9 else None]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def layer_keys(self) -> list[StreamKey]:
        """The output of every layer, 0 to N."""
        return layer_keys(self.model)


def layer_keys(model: PreTrainedModel) -> list[StreamKey]:
    """Return the streams of the output of every layer of a model, 0 to N."""
    return [StreamKey("embedding", 0), *(StreamKey("hidden", layer) for layer in range(1, depth(model.config) + 1))]


def load_subject(name_or_path: str | Path, *, device: torch.device | str = "cpu") -> Subject:
    """Load a model, without a head and in float32, and its tokenizer.

    Args:
        name_or_path: A folder, `package:NAME`, or a Hub name.
        device: Where to put it.

    Raises:
        ModelError: if either cannot be loaded, or the tokenizer has ids that the model does not.
    """
    tokenizer = loading.load_tokenizer(name_or_path)
    model = loading.load_model(name_or_path)
    loading.check_fits_model(tokenizer, shape_of(model.config).vocabulary)
    return Subject(str(name_or_path), model.to(device), tokenizer)


def check_comparable(student: Subject, teacher: Subject) -> None:
    """Refuse two models that read different tokens from the same text.

    Raises:
        ModelError: naming the first difference.
    """
    if student is teacher:
        return
    try:
        loading.check_same_vocabulary(student.tokenizer, teacher.tokenizer)
    except ModelError as error:
        reason = str(error).rsplit(";", 1)[0]
        raise ModelError(
            f"'{student.name}' and '{teacher.name}' cannot be compared token by token: {reason}; give a teacher with "
            "the same tokenizer."
        ) from error


BATCH_SIZE = 16


class TokenRows(NamedTuple):
    """Texts as token ids.

    Args:
        ids: One row a text, special tokens included.
        cut: How many of them were cut to the limit.
    """

    ids: list[list[int]]
    cut: int


class Batch(NamedTuple):
    """A padded batch.

    Args:
        rows: Which rows it holds, by their place in what was batched.
        inputs: `input_ids` and `attention_mask`, `[B, L]`, padded on the right.
        valid: Bool `[B, L]`, on the CPU: True for real tokens.
    """

    rows: list[int]
    inputs: dict[str, Tensor]
    valid: Tensor


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any) -> BatchEncoding:
    """Tokenise texts, whatever padding or truncation the tokenizer's file fixes; the tokenizer stays as it is."""
    own = loading.bare_tokenizer(tokenizer)
    return own(list(texts), padding=False, return_attention_mask=False, verbose=False, **options)


def tokenise(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], limit: int) -> TokenRows:
    """Turn texts into rows of at most `limit` tokens, special tokens kept; texts without a token are left out.

    Raises:
        CorpusError: if not one token is left.
    """
    rows: list[list[int]] = encode(tokenizer, texts)["input_ids"]
    long = [index for index, row in enumerate(rows) if len(row) > limit]
    if long:
        cut = encode(tokenizer, [texts[index] for index in long], truncation=True, max_length=limit)["input_ids"]
        for index, row in zip(long, cut, strict=True):
            rows[index] = row
    kept = [row for row in rows if row]
    if not kept:
        raise CorpusError("The texts hold no token; give a file with one sentence or paragraph a line.")
    return TokenRows(kept, len(long))


def batches(
    rows: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    device: torch.device,
    batch_size: int = BATCH_SIZE,
    report: Report = no_progress,
    what: str = "Reading",
) -> Iterator[Batch]:
    """Yield rows in batches of similar length, the longest first.

    Args:
        rows: Token ids, none empty.
        tokenizer: For the padding id.
        device: Where the inputs go.
        batch_size: Rows a batch.
        report: Receives the share of tokens that are done.
        what: The step in words.
    """
    # Padding is masked, so that any id will do for a tokenizer without one.
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    total, done = sum(map(len, rows)), 0
    for chosen, inputs in padded_batches(rows, padding, batch_size):
        report(done / total, what, Count(done, "tokens"))
        valid = inputs["attention_mask"].bool()
        yield Batch(chosen, {name: tensor.to(device) for name, tensor in inputs.items()}, valid)
        done += int(valid.sum())
    report(1.0, what, Count(total, "tokens"))


def shortest_limit(length: int, *limits: int | None) -> int:
    """Return the tokens a row may have: what was asked for, lowered to what every model can take."""
    return min([length, *(limit for limit in limits if limit is not None)])


SENTENCES = (
    "The river had risen so quickly that the old bridge was closed before noon.",
    "She wrote the letter twice, burned the first copy, and posted the second without reading it.",
    "Copper conducts heat far better than glass does.",
    "Nobody at the meeting could say who had ordered the second survey.",
    "In 1911 the town built a small observatory on the hill behind the school.",
    "Why would a baker close the shop on the busiest morning of the week?",
    "The committee rejected the plan, although three of its members had drafted it.",
    "He is tall, quick with numbers, and afraid of dogs.",
    "Fold the paper in half, press the edge flat, and turn it over.",
    "Most of the seeds that fall on the path are eaten by birds.",
    "The bank raised its rates by a quarter of a point, and the currency barely moved.",
    "After the storm, the fishermen found their nets two miles down the coast.",
    "A vaccine trains the immune system without causing the disease itself.",
    "The painting that hung in the hall turned out to be a careful forgery.",
    "I have never seen a better view of the valley than from this window.",
    "The train to the north leaves from platform four at half past six.",
    "Although the engine was old, it started at the first attempt.",
    "The judge asked whether the witness had seen the car or only heard it.",
    "Water that is trapped between layers of rock can stay there for thousands of years.",
    "They sold the farm to pay for the hospital, and rented a flat above the pharmacy.",
    "The orchestra played the slow movement too fast for my taste.",
    "Every summer the storks return to the same chimney.",
    "The new law allows shops to open on Sundays, but few of them do.",
    "What the map did not show was the wall that ran along the whole border.",
    "The student copied the answers of her teacher and understood half of them.",
    "It took the engineers nine days to find the leak and ten minutes to repair it.",
    "Bees tell one another where the flowers are by dancing.",
    "The museum keeps the smaller coins in drawers that are never opened in daylight.",
    "If you add the acid to the water slowly, nothing dramatic happens.",
    "My grandfather repaired clocks, radios and, on one occasion, a church organ.",
    "The price of bread doubled in a year, while wages stayed where they were.",
    "From the air the fields look like a quilt that somebody left out in the rain.",
)


def read_texts(path: Path | str | None, limit: int) -> tuple[str, ...]:
    """Read texts, one a line; blank lines are passed over.

    Args:
        path: A UTF-8 file, or None for the sentences that come along.
        limit: Most texts, taken evenly over the file.

    Raises:
        CorpusError: if the file cannot be read, or holds no text.
    """
    texts = list(SENTENCES) if path is None else read_all_texts(Path(path))
    taken = min(limit, len(texts))
    return tuple(texts[index * len(texts) // taken] for index in range(taken))
