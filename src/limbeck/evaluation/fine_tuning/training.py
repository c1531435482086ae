"""Fine-tuning by `transformers.Trainer`: the same weights as a plain script's, from the same seed and settings."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from limbeck.errors import TrainingError
from limbeck.evaluation.answers.decoding import decode_answers
from limbeck.evaluation.fine_tuning.batches import TaskCollator
from limbeck.evaluation.fine_tuning.best_epoch import BestEpoch, copy_weights
from limbeck.evaluation.fine_tuning.cell import TrainingPoint
from limbeck.evaluation.fine_tuning.encoding import open_columns
from limbeck.evaluation.fine_tuning.prepared import PreparedTask
from limbeck.evaluation.fine_tuning.progress import Share, StepReporter
from limbeck.evaluation.fine_tuning.question_encoding import read_windows
from limbeck.evaluation.tasks.load import TRAIN
from limbeck.evaluation.tasks.predictions import Predictions

EVALUATION_BATCH = 64


def training_arguments(point: TrainingPoint, seed: int) -> TrainingArguments:
    """Return the arguments of one fine-tuning; what a grid point does not say is left to `transformers`.

    Args:
        point: The settings.
        seed: Of the order of rows and of dropout.
    """
    accelerated = torch.accelerator.is_available()
    return TrainingArguments(
        output_dir=tempfile.gettempdir(),  # The loop wants one that is there; nothing is written.
        seed=seed,
        learning_rate=point.learning_rate,
        num_train_epochs=point.epochs,
        per_device_train_batch_size=point.batch_size,
        per_device_eval_batch_size=EVALUATION_BATCH,
        warmup_steps=point.warmup,  # Below 1 it is a share of the steps.
        lr_scheduler_type=point.schedule,
        weight_decay=point.weight_decay,
        train_sampling_strategy="group_by_length" if point.group_by_length else "random",
        bf16=point.bf16,
        use_cpu=not accelerated,
        dataloader_pin_memory=accelerated,
        remove_unused_columns=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


class OrderedTrainer(Trainer):
    """The ordinary loop, whose predictions come in the order of the rows.

    By itself, where batches are of rows of similar length, it draws those that it predicts by length too, and returns
    their predictions in that order.
    """

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler:
        return SequentialSampler(eval_dataset)


class FineTuner:
    """One model being fine-tuned on the rows of one task, and predicting those of any task with the same head.

    Args:
        model: With the head of the task; trained in place.
        tokenizer: Its tokenizer.
        prepared: The task.
        arguments: Of the training.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: Any, prepared: PreparedTask, arguments: TrainingArguments
    ) -> None:
        self._last: dict[str, Tensor] | None = None
        self._trainer = OrderedTrainer(
            model=model,
            args=arguments,
            train_dataset=open_columns(prepared.tokens(TRAIN)),
            data_collator=TaskCollator(model, tokenizer, prepared.task.kind),
        )
        self._trainer.remove_callback(PrinterCallback)

    def train(self, report: Share, best_epochs: Sequence[BestEpoch] = ()) -> None:
        """Train to the end.

        Args:
            report: Is told how far it is.
            best_epochs: Are asked after every epoch, and keep a copy of the weights that each finds best.
        """
        for callback in (StepReporter(report), *best_epochs):
            self._trainer.add_callback(callback)
        self._trainer.train()
        self._last = copy_weights(self._trainer.model) if best_epochs else None

    def settle(self, best: BestEpoch | None) -> None:
        """Give the model the weights of one of its best epochs, or its last ones.

        Raises:
            TrainingError: if a weight is not finite.
        """
        model = self._trainer.model
        if best is not None:
            best.restore(model)
        elif self._last is not None:
            model.load_state_dict(self._last)
        if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
            raise TrainingError(
                "A weight became infinite or no number; use a lower learning rate, or --set bf16=false."
            )

    def predict(self, prepared: PreparedTask, split: str) -> Predictions:
        """Predict a split of a task: a class or a value per row, or an answer per row id."""
        path = prepared.tokens(split)
        columns = open_columns(path)
        known = [name for name in columns.column_names if name in ("input_ids", "token_type_ids")]
        found = self._trainer.predict(columns.select_columns(known)).predictions
        kind = prepared.task.kind
        if kind == "question_answering":
            start_scores, end_scores = found[0], found[1]
            return decode_answers(
                read_windows(path),
                start_scores,
                end_scores,
                {row.id: row.text for row in prepared.rows[split]},
                answerable_only=prepared.task.answerable_only,
            )
        scores: NDArray[np.floating[Any]] = found[0] if isinstance(found, tuple) else found
        if kind == "regression":
            return [float(value) for value in scores[:, 0]]
        return [int(number) for number in scores.argmax(-1)]
