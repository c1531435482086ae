"""Models scored by their heads as they are: predictions of any task, decoded and scored; nothing is trained."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from limbeck.core import progress
from limbeck.core.devices import choose_device
from limbeck.core.kinds import KINDS
from limbeck.errors import ModelError, TrainingError
from limbeck.evaluation.encoding import PreparedTask, TaskCollator, open_columns
from limbeck.evaluation.tasks import Predictions, Task
from limbeck.models import families, heads, inference, loading, vocabularies
from limbeck.models.quiet import quiet

EVALUATION_BATCH = 64
_SHOWN = 6
Outputs: TypeAlias = Sequence[Sequence[NDArray[np.float32]]]
"""Every output of a head, a row each: `logits`, `[classes]`, or the scores of starts and of ends, `[tokens]`, with
padding behind them."""


def load_head(name: str, task: Task, tokenizer: Any, length: int) -> PreTrainedModel:
    """Load a model with its own head for a task, in float32, on the device that is used.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        task: Decides the head.
        tokenizer: Of the model.
        length: Most tokens of a row.

    Raises:
        ModelError: if it cannot be loaded or has no such head, or takes fewer tokens.
    """
    model = loading.load_model(name, head=cast(heads.Head, task.kind))
    check_inputs(name, model, tokenizer, length)
    if model.config.pad_token_id is None:  # Heads of decoders find the last token of each text by it.
        model.config.pad_token_id = tokenizer.pad_token_id
    return model.to(choose_device("auto"))


@torch.no_grad()
def read_outputs(
    model: PreTrainedModel,
    tokenizer: Any,
    prepared: PreparedTask,
    split: str,
    *,
    bf16: bool = False,
    classes: Sequence[int] | None = None,
    report: progress.Report = progress.no_progress,
) -> Outputs:
    """Run a model over the rows of a split, in their order; it draws no random number, and stays in its mode.

    Args:
        model: With the head of the task.
        tokenizer: Its tokenizer.
        prepared: The task.
        split: One of its splits.
        bf16: Compute in bfloat16.
        classes: Which of its outputs each class of the task is, see `HeadMatch`; None takes them in their order.
        report: Receives the progress.

    Raises:
        ModelError: for scores that are infinite or no number, of which any would come out as a class.
    """
    columns = open_columns(prepared.tokens(split))
    rows = columns.select_columns([name for name in columns.column_names if name in ("input_ids", "token_type_ids")])
    collate = TaskCollator(model, tokenizer, prepared.task.kind)
    names = ("start_logits", "end_logits") if KINDS[prepared.task.kind].has_answers else ("logits",)
    device, was_training = inference.device_of(model), model.training
    found: list[list[NDArray[np.float32]]] = [[] for _ in names]
    model.eval()
    for start in range(0, len(rows), EVALUATION_BATCH):
        batch = collate([rows[index] for index in range(start, min(start + EVALUATION_BATCH, len(rows)))])
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            given = model(**{name: tensor.to(device) for name, tensor in batch.items()})
        for name, values in zip(names, found, strict=True):
            scores = given[name].float().cpu().numpy()
            if not np.isfinite(scores).all():
                raise ModelError(
                    f"'{model.name_or_path}' gives rows of {prepared.task.title} scores that are not finite "
                    "numbers: its weights are too large for their type, or damaged; copy the model again or retrain it."
                )
            values.extend(scores if classes is None else scores[..., list(classes)])
        done = min(start + EVALUATION_BATCH, len(rows))
        report(done / len(rows), f"rows of {prepared.task.title}", progress.Count(done, "rows"))
    model.train(was_training)
    return found


def decode(prepared: PreparedTask, split: str, outputs: Outputs) -> Predictions:
    """Return the predictions that the outputs of a head stand for: a class or a value per row, or answers by row id.

    Where a row may have several classes, it is the probability of each: sigmoid(z).
    """
    kind = KINDS[prepared.task.kind]
    if kind.of_tokens:
        return prepared.decode(split, *outputs)
    scores = np.stack(outputs[0])
    if kind.has_value:
        return [float(value) for value in scores[:, 0]]
    if kind.has_several:
        from scipy.special import expit

        return [tuple(row) for row in expit(scores.astype(np.float64)).tolist()]
    return [int(number) for number in scores.argmax(-1)]


def predict(model: PreTrainedModel, tokenizer: Any, prepared: PreparedTask, split: str, **options: Any) -> Predictions:
    """Predict a split of a task by a model's head, see `read_outputs`, whose options it has, and `decode`."""
    return decode(prepared, split, read_outputs(model, tokenizer, prepared, split, **options))


# What a model and its tokenizer must have in order to be fine-tuned or scored.


def check_padding(name: str, tokenizer: Any) -> None:
    """Refuse a tokenizer without a padding token: rows of several lengths could not share a batch.

    Args:
        name: The model, as the user named it.
        tokenizer: Its tokenizer.

    Raises:
        ModelError: if it has none.
    """
    if tokenizer.pad_token_id is None:
        raise ModelError(f"The tokenizer of '{name}' has no padding token; set its pad_token and save it again.")


def check_inputs(name: str, model: PreTrainedModel, tokenizer: Any, length: int) -> None:
    """Refuse tokens that the model has no embedding for, and rows that are longer than it takes."""
    shape = families.shape_of(model.config)
    check_padding(name, tokenizer)
    vocabularies.check_fits_model(tokenizer, shape.vocabulary)
    if shape.positions is not None and length > shape.positions:
        raise ModelError(f"'{name}' takes {shape.positions} tokens, not {length}; give --set length={shape.positions}.")


@contextmanager
def plainly() -> Iterator[None]:
    """Keep libraries quiet, and name the way out of a full device in one line."""
    try:
        with quiet():
            yield
    except torch.OutOfMemoryError:
        raise TrainingError("The device is out of memory; lower batch_size or length by --set.") from None
