"""Outputs of a model's head over the rows of a task, and the checks of model and tokenizer before them.

An *output* is a tensor that the head returns by name: `logits`, or for questions the scores of starts and of ends.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from limbeck.core import progress
from limbeck.core.devices import choose_device
from limbeck.errors import ModelError, TrainingError
from limbeck.evaluation.evaluators.batches import TaskCollator
from limbeck.evaluation.evaluators.prepared_task import PreparedTask
from limbeck.evaluation.evaluators.token_files import open_columns
from limbeck.kinds.kind import Outputs
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import Predictions, Task
from limbeck.models import families, inference, loading
from limbeck.models.padding import check_padding, set_padding
from limbeck.models.quiet import quiet
from limbeck.models.vocabularies import check_fits_model

EVALUATION_BATCH = 64
"""Rows of a forward pass."""
_MODEL_COLUMNS = ("input_ids", "token_type_ids")
"""Columns of a file of tokens that a model takes."""


def load_head(name: str, task: Task, tokenizer: Any, length: int) -> PreTrainedModel:
    """Load a model with its own head for a task, in float32, on the device that is used.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        task: The task, which decides the head.
        tokenizer: The tokenizer of the model.
        length: Most tokens of a row.

    Raises:
        ModelError: if it cannot be loaded or has no such head, or takes fewer tokens.
    """
    model = loading.load_model(name, head=task.kind)
    check_inputs(name, model, tokenizer, length)
    set_padding(model, tokenizer)
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
    """Run a model over the rows of a split, in their order.

    It draws no random numbers, and puts the model back into the mode (training or evaluation) that it had.

    Args:
        model: The model, with the head of the task.
        tokenizer: The tokenizer of the model.
        prepared: The task with its tokens.
        split: A split of the task.
        bf16: Whether it computes in bfloat16.
        classes: For each class of the task, the index of the model's output for it, see `HeadMatch`; None takes the
            outputs in their order.
        report: Receives the progress.

    Returns:
        For each output of the head, in the order of its kind's `output_names`, an array for each row or window.

    Raises:
        ModelError: for scores that are infinite or NaN, since the highest of them would be taken for a class.
    """
    task = prepared.task
    columns = open_columns(prepared.tokens(split))
    rows = columns.select_columns([name for name in columns.column_names if name in _MODEL_COLUMNS])
    collate = TaskCollator(model, tokenizer, task.kind)
    device = inference.device_of(model)
    output_names = KINDS[task.kind].output_names
    scores_of_rows: dict[str, list[NDArray[np.float32]]] = {name: [] for name in output_names}
    amount, unit = prepared.amount(split)
    was_training = model.training
    model.eval()
    for start in range(0, len(rows), EVALUATION_BATCH):
        end = min(start + EVALUATION_BATCH, len(rows))
        batch = collate([rows[index] for index in range(start, end)])
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            outputs = model(**{name: tensor.to(device) for name, tensor in batch.items()})
        for name in output_names:
            scores = outputs[name].float().cpu().numpy()  # [rows, …]
            _check_finite(scores, model, task)
            if classes is not None:
                # Only `logits` come with `classes`. Their last axis, which is that of the model's classes, becomes that
                # of the task's.
                scores = scores[..., list(classes)]
            scores_of_rows[name].extend(scores)
        # The pairs or pieces that are done, as a number of whole queries or rows.
        done = amount * end // len(rows)
        report(end / len(rows), f"{unit} of {task.title}", progress.Count(done, unit))
    model.train(was_training)
    return [scores_of_rows[name] for name in output_names]


def _check_finite(scores: NDArray[np.float32], model: PreTrainedModel, task: Task) -> None:
    """Refuse scores that are infinite or NaN.

    Raises:
        ModelError: naming the model.
    """
    if not np.isfinite(scores).all():
        raise ModelError(
            f"'{model.name_or_path}' gives rows of {task.title} scores that are not finite numbers: its "
            "weights are too large for their type, or damaged; copy the model again or retrain it."
        )


def predict(model: PreTrainedModel, tokenizer: Any, prepared: PreparedTask, split: str, **options: Any) -> Predictions:
    """Predict the rows of a split by a model's head.

    Args:
        model: The model, with the head of the task.
        tokenizer: The tokenizer of the model.
        prepared: The task with its tokens.
        split: A split of the task.
        **options: Options of `read_outputs`.
    """
    outputs = read_outputs(model, tokenizer, prepared, split, **options)
    return prepared.decode(split, outputs)


def check_inputs(name: str, model: PreTrainedModel, tokenizer: Any, length: int) -> None:
    """Refuse tokens that the model has no embedding for, and rows that are longer than it takes.

    Args:
        name: The model, as the user named it.
        model: The model.
        tokenizer: The tokenizer of the model.
        length: Most tokens of a row.

    Raises:
        ModelError: for either, and for a tokenizer that cannot pad.
    """
    shape = families.shape_of(model.config)
    check_padding(name, tokenizer)
    check_fits_model(tokenizer, shape.vocabulary)
    # A family without a table of positions takes rows of any length.
    if shape.positions is not None and length > shape.positions:
        raise ModelError(f"'{name}' takes {shape.positions} tokens, not {length}; give --set length={shape.positions}.")


@contextmanager
def quiet_and_explain_oom(settings: str = "length") -> Iterator[None]:
    """Keep libraries quiet inside the block, and replace torch's error of a full device by one line with the way out.

    Args:
        settings: The settings that need less memory if they are lower. Scoring takes batches of a fixed size.

    Raises:
        TrainingError: where the device is out of memory.
    """
    try:
        with quiet():
            yield
    except torch.OutOfMemoryError:
        raise TrainingError(f"The device is out of memory; give a smaller {settings} with --set.") from None
