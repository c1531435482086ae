"""`FineTuner`, a fine-tuning by `transformers.Trainer`.

It ends with the same weights as a plain script that seeds, loads the model and trains with the same settings.
"""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback, TrainerControl, TrainerState

from limbeck.core.devices import has_accelerator
from limbeck.core.progress import Count, Report, no_progress
from limbeck.corpus.rows.classes import ClassWeights, balance, count_classes, labels_of
from limbeck.errors import ModelError, TrainingError
from limbeck.evaluation.evaluators import head_outputs
from limbeck.evaluation.evaluators.batches import TaskCollator
from limbeck.evaluation.evaluators.evaluator import Share
from limbeck.evaluation.evaluators.prepared_task import PreparedTask
from limbeck.evaluation.evaluators.token_files import open_columns
from limbeck.evaluation.plan.points import TrainingPoint
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import Predictions, Task
from limbeck.models import heads, loading
from limbeck.models.cross_encoders import cross_encoder_settings

_IDENTITY = "torch.nn.modules.linear.Identity"
"""The activation that changes nothing, as a configuration of sentence-transformers names it."""
_LOSS_SECONDS = 2.0
"""Seconds between two looks at the loss, each of which waits for the device."""


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's weights, on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


class BestEpoch(TrainerCallback):
    """Scores the model after every epoch and keeps a copy of its best weights; of equal epochs, the first.

    Scoring leaves the random state of the training as it was, so the weights of every epoch are the same as without
    scoring.

    Args:
        score: Scores the model as it is; higher is better.
        metric: The name of the score.

    Attributes:
        epoch: The best epoch so far.
        last_score: The score after the last epoch; None before the end of the first one.
    """

    def __init__(self, score: Callable[[], float], metric: str = "score") -> None:
        self.metric = metric
        self.last_score: float | None = None
        self._score = score
        self._best = -math.inf
        self._weights: dict[str, Tensor] = {}
        self.epoch: float | None = None

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Score, and keep the weights if they are the best so far."""
        model = kwargs["model"]
        with torch.random.fork_rng():
            value = self._score()
        self.last_score = value
        if value > self._best:
            self._best = value
            self._weights = copy_weights(model)
            self.epoch = state.epoch

    def restore(self, model: PreTrainedModel) -> None:
        """Give a model the kept weights."""
        model.load_state_dict(self._weights)


def load_task_model(name: str, task: Task, *, seed: int) -> PreTrainedModel:
    """Load a model for fine-tuning on a task, in float32, on the CPU.

    All random states are seeded first, as a script does that calls `set_seed` and then `from_pretrained`: what the
    checkpoint lacks of the head (and a pooler below it) is drawn from them.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        task: The task, which decides the class of the model and the number of its outputs.
        seed: Seed of the weights of a new head.

    Raises:
        ModelError: for a model that cannot be loaded or is damaged, or whose family has no such head.
    """
    config = loading.load_config(name)
    kind = KINDS[task.kind]
    kind.set_up_head(config, task.labels)
    if kind.facts.output is not None:
        # The loss and the metrics read the scores themselves; sentence-transformers would take a sigmoid.
        settings = cross_encoder_settings(name, config, None)
        config.sentence_transformers = {**settings, "activation_fn": _IDENTITY}
    model_class = heads.model_class(config, task.kind)
    set_seed(seed)
    # A head of another task is drawn anew.
    model, info = loading.load_class(model_class, name, config)
    _check_encoder(name, model, info)
    loading.check_finite(name, model)
    return model


def _check_encoder(name: str, model: PreTrainedModel, info: dict[str, Any]) -> None:
    """Refuse a checkpoint that lacks a part of the encoder, or holds it in another shape.

    Args:
        name: The model, as the user named it.
        model: The model, as it was loaded.
        info: What `from_pretrained` says of the checkpoint.

    Raises:
        ModelError: naming the first tensor.
    """
    # The names of the encoder's tensors begin with this; those of the head do not. A pooler may be drawn anew.
    prefix = f"{model.base_model_prefix}."
    missing = [key for key in sorted(info["missing_keys"]) if key.startswith(prefix) and ".pooler." not in key]
    if missing:
        raise ModelError(
            f"The weights of '{name}' lack {len(missing)} tensors of its encoder (the first is {missing[0]}); save "
            "the whole model again."
        )
    # Each entry is a name with the two shapes that differ.
    mismatched = [key for key, *_ in sorted(info["mismatched_keys"]) if key.startswith(prefix)]
    if mismatched:
        raise ModelError(
            f"The weights of '{name}' do not fit its config.json (the first tensor that does not is "
            f"{mismatched[0]}); copy the model again."
        )


class StepReporter(TrainerCallback):
    """Reports the steps of the training that are done, with the epoch, the loss and the score on development rows.

    Args:
        report: Receives the progress.
        mean_loss: Returns the mean loss of the steps since its last call, which waits for the device.
        best_epochs: Score the model after every epoch; the scores of the first of them are shown.
    """

    def __init__(self, report: Share, mean_loss: Callable[[], float | None], best_epochs: Sequence[BestEpoch]) -> None:
        self._report = report
        self._mean_loss = mean_loss
        self._best_epochs = best_epochs
        self._loss = ""
        self._loss_time = -math.inf

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Report the step."""
        now = time.monotonic()
        if now - self._loss_time >= _LOSS_SECONDS:
            self._loss_time = now
            loss = self._mean_loss()
            self._loss = "" if loss is None else f"loss {loss:.3f}"

        share = state.global_step / max(state.max_steps, 1)
        # `state.epoch` counts the epochs that are done, with a fraction: 1.2 stands within the second one.
        epoch = max(1, math.ceil(state.epoch or 0.0))
        parts = [
            f"epoch {epoch} of {math.ceil(args.num_train_epochs)}",
            f"step {state.global_step:,} of {state.max_steps:,}",
            self._loss,
            self._development_score(),
        ]
        detail = ", ".join(part for part in parts if part)
        self._report(share, detail, Count(state.global_step, "steps"))

    def _development_score(self) -> str:
        """The score after the last epoch in words; empty before the end of the first epoch, and if none is scored."""
        for best_epoch in self._best_epochs:
            if best_epoch.last_score is not None:
                return f"development {best_epoch.metric} {best_epoch.last_score:.3f}"
        return ""


class _LossKeeper(Trainer):
    """transformers' trainer, which also sums the losses of its micro-batches, on the device."""

    _loss_sum: Tensor | None = None
    _loss_count = 0

    def training_step(self, *arguments: Any, **options: Any) -> Tensor:
        """Train on a micro-batch, and add its loss to the sum."""
        loss = super().training_step(*arguments, **options)
        self._loss_sum = loss.detach() if self._loss_sum is None else self._loss_sum + loss.detach()
        self._loss_count += 1
        return loss

    def mean_loss(self) -> float | None:
        """Return the mean loss since the last call; None if there was no step since."""
        if self._loss_sum is None:
            return None
        # The losses of the micro-batches of a step add up to the loss of the step.
        steps = self._loss_count / self.args.gradient_accumulation_steps
        mean = float(self._loss_sum) / steps
        self._loss_sum = None
        self._loss_count = 0
        return mean


def training_keywords(point: TrainingPoint, seed: int) -> dict[str, Any]:
    """Return the arguments that decide the weights of a fine-tuning, by names of `transformers.TrainingArguments`.

    Args:
        point: The settings; what it lacks is left to `transformers`.
        seed: Seed of the order of rows and of dropout.
    """
    return {
        "seed": seed,
        "learning_rate": point.learning_rate,
        "num_train_epochs": point.epochs,
        "per_device_train_batch_size": point.batch_size,
        # `transformers` takes a number below 1 as a share of the steps.
        "warmup_steps": point.warmup,
        "lr_scheduler_type": point.schedule,
        "weight_decay": point.weight_decay,
        "train_sampling_strategy": "group_by_length" if point.group_by_length else "random",
        "bf16": point.bf16,
    }


def changed_keywords(point: TrainingPoint, seed: int) -> dict[str, Any]:
    """Return the `training_keywords` that are not the defaults of `transformers`, for records."""
    defaults = {field.name: field.default for field in fields(TrainingArguments)}
    keywords = training_keywords(point, seed)
    # A keyword that this version of `transformers` lacks has no default, and none of them is None.
    return {name: value for name, value in keywords.items() if value != defaults.get(name)}


def training_arguments(point: TrainingPoint, seed: int) -> TrainingArguments:
    """Return the arguments of one fine-tuning, on this machine.

    Args:
        point: The settings.
        seed: Seed of the order of rows and of dropout.
    """
    is_accelerated = has_accelerator()
    return TrainingArguments(
        **training_keywords(point, seed),
        # The Trainer needs an existing folder, although nothing is written to it.
        output_dir=tempfile.gettempdir(),
        per_device_eval_batch_size=head_outputs.EVALUATION_BATCH,
        use_cpu=not is_accelerated,
        dataloader_pin_memory=is_accelerated,
        remove_unused_columns=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


class FineTuner:
    """One model being fine-tuned on the rows of one task, and predicting those of any task with the same head.

    Args:
        model: The model with the head of the task, which is trained in place.
        tokenizer: The tokenizer of the model.
        prepared: The task.
        arguments: Arguments of the training.
        class_weights: Weights of the classes in the loss; None weighs all alike.

    Attributes:
        model: The model; see `settle`.
        tokenizer: The tokenizer of the model.

    Raises:
        CorpusError: for balanced weights of a class that no row has.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        prepared: PreparedTask,
        arguments: TrainingArguments,
        class_weights: ClassWeights | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        # A copy of the weights after the last epoch, if `settle` may put those of a better epoch into the model.
        self._last_weights: dict[str, Tensor] | None = None
        task = prepared.task
        kind = KINDS[task.kind]
        rows = open_columns(prepared.tokens(TRAIN))
        weights = None
        if class_weights is not None:
            counts = count_classes(labels_of(rows), task.labels, kind.facts)
            weights = balance(class_weights, counts)
        self._trainer = _LossKeeper(
            model=model,
            args=arguments,
            train_dataset=rows,
            data_collator=TaskCollator(model, tokenizer, task.kind),
            compute_loss_func=kind.loss(weights),
        )
        self._trainer.remove_callback(PrinterCallback)

    def train(self, report: Share, best_epochs: Sequence[BestEpoch] = ()) -> None:
        """Train to the end.

        Args:
            report: Receives the progress.
            best_epochs: Score the model after every epoch, and keep a copy of its best weights.
        """
        for callback in (*best_epochs, StepReporter(report, self._trainer.mean_loss, best_epochs)):
            self._trainer.add_callback(callback)
        self._trainer.train()
        if best_epochs:
            self._last_weights = copy_weights(self._trainer.model)

    def settle(self, best: BestEpoch | None) -> None:
        """Put the weights that are to be scored into the model.

        Args:
            best: The callback that kept the weights of its best epoch; None takes the weights after the last epoch.

        Raises:
            TrainingError: if a weight is not finite.
        """
        model = self._trainer.model
        if best is not None:
            best.restore(model)
        elif self._last_weights is not None:
            model.load_state_dict(self._last_weights)
        are_finite = all(bool(parameter.isfinite().all()) for parameter in model.parameters())
        if not are_finite:
            raise TrainingError(
                "A weight became infinite or NaN during fine-tuning; use a lower learning rate, or --set bf16=false."
            )

    def predict(self, prepared: PreparedTask, split: str, report: Report = no_progress) -> Predictions:
        """Predict a split of a task: a class or a value per row, or an answer per row id."""
        model = self._trainer.model
        bf16 = self._trainer.args.bf16
        return head_outputs.predict(model, self.tokenizer, prepared, split, bf16=bf16, report=report)
