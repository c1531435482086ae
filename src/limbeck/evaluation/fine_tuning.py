"""Fine-tuning by `transformers.Trainer`: the same weights as a plain script's, from the same seed and settings."""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback, TrainerControl, TrainerState

from limbeck.core.machine import choose_device
from limbeck.errors import CorpusError, ModelError, TrainingError
from limbeck.evaluation import inference, task_files
from limbeck.evaluation.cell import Cell, SimilarityPoint, TrainingPoint
from limbeck.evaluation.encoding import PreparedCell, PreparedTask, TaskCollator, open_columns
from limbeck.evaluation.metrics import score
from limbeck.evaluation.tasks import Predictions, Task
from limbeck.models import families, heads, loading, locating


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's weights, on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


class BestEpoch(TrainerCallback):
    """Scores the model after every epoch and keeps a copy of its best weights; of equals, the first.

    Scoring draws no random numbers that training would have drawn, so the weights of every epoch are those of a
    training that is never scored.

    Args:
        score: Scores the model as it is; higher is better.
    """

    def __init__(self, score: Callable[[], float]) -> None:
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
        # A correlation of constant predictions is NaN: no better than anything, but better than no weights at all.
        if value > self._best or not self._weights:
            self._best = value if math.isfinite(value) else -math.inf
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
        task: Decides the class of the model and the number of its outputs.
        seed: Of the head.

    Raises:
        ModelError: for a model that cannot be loaded, or whose family has no such head.
    """
    config = loading.load_config(name)
    if task.kind == "classification":
        config.num_labels, config.problem_type = len(task.labels), "single_label_classification"
        config.id2label = dict(enumerate(task.labels))
        config.label2id = {label: number for number, label in enumerate(task.labels)}
    elif task.kind == "regression":
        config.num_labels, config.problem_type = 1, "regression"
    loader = heads.model_class(config, cast(heads.Head, task.kind))
    set_seed(seed)
    model, info = loading.load_class(loader, name, config)  # A head of another task is drawn anew.
    _check_encoder(name, model, info)
    return model


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


def _check_encoder(name: str, model: PreTrainedModel, info: dict[str, Any]) -> None:
    """Refuse a checkpoint that lacks a part of the encoder, or holds it in another shape."""
    prefix = f"{model.base_model_prefix}."
    lacking = [key for key in sorted(info["missing_keys"]) if key.startswith(prefix) and ".pooler." not in key]
    if lacking:
        raise ModelError(
            f"The weights of '{name}' lack {len(lacking)} tensors of its encoder (first {lacking[0]}); save it whole."
        )
    misfits = [key for key, *_ in sorted(info["mismatched_keys"]) if key.startswith(prefix)]
    if misfits:
        raise ModelError(
            f"The weights of '{name}' do not fit its config.json (first {misfits[0]}); copy the model again."
        )


Share: TypeAlias = Callable[[float], None]
"""Receives the share of a cell that is done, 0 to 1."""

TRAINING_SHARE = 0.95
"""The rest of a cell is scoring."""


class StepReporter(TrainerCallback):
    """Reports the steps of the training that are done.

    Args:
        report: Receives the share.
    """

    def __init__(self, report: Share) -> None:
        self._report = report

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Report the step."""
        self._report(TRAINING_SHARE * state.global_step / max(state.max_steps, 1))


EVALUATION_BATCH = 64


def training_arguments(point: TrainingPoint, seed: int) -> TrainingArguments:
    """Return the arguments of one fine-tuning; settings that a grid point lacks are left to `transformers`.

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
            train_dataset=open_columns(prepared.tokens(task_files.TRAIN)),
            data_collator=TaskCollator(model, tokenizer, prepared.task.kind),
        )
        self._trainer.remove_callback(PrinterCallback)

    def train(self, report: Share, best_epochs: Sequence[BestEpoch] = ()) -> None:
        """Train to the end.

        Args:
            report: Receives the progress.
            best_epochs: Score the model after every epoch, and keep a copy of its best weights.
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
        columns = open_columns(prepared.tokens(split))
        known = [name for name in columns.column_names if name in ("input_ids", "token_type_ids")]
        found = self._trainer.predict(columns.select_columns(known)).predictions
        kind = prepared.task.kind
        if kind == "question_answering":
            return prepared.decode(split, found[0], found[1])
        scores: NDArray[np.floating[Any]] = found[0] if isinstance(found, tuple) else found
        if kind == "regression":
            return [float(value) for value in scores[:, 0]]
        return [int(number) for number in scores.argmax(-1)]


Scores: TypeAlias = dict[str, dict[str, float]]
"""Split to metric to value, 0 to 1 (correlations -1 to 1)."""


@dataclass(frozen=True)
class CellResult:
    """Scores and predictions of a cell, with their cost.

    Attributes:
        scores: Of every scored split, and of the select split.
        predictions: Of the unlabelled splits.
        epoch: Whose weights were scored; None where they are the last.
        rows: Number of rows to train on, and of every scored split.
        seconds: For everything, tokens and data apart; a training that is shared counts for each of its cells.
        training_seconds: Of the training alone; 0 where nothing is trained.
    """

    scores: Scores
    predictions: Mapping[str, Predictions]
    epoch: float | None
    rows: dict[str, int]
    seconds: float
    training_seconds: float


@dataclass(frozen=True)
class Trained:
    """A finished training, by which its cells are scored.

    Attributes:
        tuner: Holds the fine-tuned model; None where nothing is trained.
        best_epochs: Of the cells that keep the weights of an epoch.
        seconds: For the training.
    """

    tuner: FineTuner | None
    best_epochs: Mapping[Cell, BestEpoch]
    seconds: float

    def score(self, cell: PreparedCell) -> CellResult:
        """Score one of the cells, by the weights that its settings keep.

        Raises:
            LimbeckError: one clear line: a weight that is not finite, a device that is out of memory, a model without
                sentence vectors.
        """
        started = time.monotonic()
        best = self.best_epochs.get(cell.cell)
        with _plainly():
            scores, predictions = _similarities(cell) if self.tuner is None else _scored(cell, self.tuner, best)
        rows = {"train": cell.task.train_rows, **{split: len(cell.task.rows[split]) for split in scores}}
        seconds = self.seconds + time.monotonic() - started
        epoch = None if best is None else best.epoch
        return CellResult(scores, predictions, epoch, rows, round(seconds, 3), round(self.seconds, 3))


def train_once(cells: Sequence[PreparedCell], report: Share) -> Trained:
    """Fine-tune a model once, for all cells that it is then scored for.

    Args:
        cells: At least one; all of the same training, see `training_identity`. They differ in the scored
            rows and in the epoch they keep.
        report: Receives the progress.

    Raises:
        LimbeckError: one clear line: a model that cannot be loaded or takes fewer tokens than asked for, a device that
            is out of memory.
    """
    started = time.monotonic()
    (cell, prepared), point = cells[0], cells[0].cell.point
    if isinstance(point, SimilarityPoint):
        return Trained(None, {}, 0.0)
    with _plainly():
        tokenizer = loading.load_tokenizer(cell.model)
        arguments = training_arguments(point, cell.seed)
        model = load_task_model(cell.model, prepared.task, seed=cell.seed)
        _check_inputs(cell.model, model, tokenizer, point.length)
        if model.config.pad_token_id is None:  # Heads of decoders find the last token of each text by it.
            model.config.pad_token_id = tokenizer.pad_token_id
        tuner = FineTuner(model, tokenizer, prepared, arguments)
        best_epochs = {each.cell: best for each in cells if (best := _best_epoch(each, tuner)) is not None}
        tuner.train(report, list(best_epochs.values()))
    return Trained(tuner, best_epochs, time.monotonic() - started)


def select_split(prepared: PreparedTask) -> str | None:
    """Return the split that grid points and epochs are chosen on: the task's, else the first that is scored."""
    task = prepared.task
    return task.select if task.select in prepared.rows else next(iter(task.scored), None)


def _best_epoch(cell: PreparedCell, tuner: FineTuner) -> BestEpoch | None:
    point, split = cell.cell.point, select_split(cell.task)
    if isinstance(point, SimilarityPoint) or point.best_epoch_by is None or split is None:
        return None
    metric, prepared = point.best_epoch_by, cell.task

    def selected() -> float:
        scores = score(prepared.task, split, prepared.rows[split], tuner.predict(prepared, split))
        return scores.get(metric, next(iter(scores.values())))

    return BestEpoch(selected)


def _scored(cell: PreparedCell, tuner: FineTuner, best: BestEpoch | None) -> tuple[Scores, Mapping[str, Predictions]]:
    tuner.settle(best)
    prepared, task, select = cell.task, cell.task.task, select_split(cell.task)
    splits = dict.fromkeys([*task.scored, *([select] if select is not None else [])])
    scores = {split: score(task, split, prepared.rows[split], tuner.predict(prepared, split)) for split in splits}
    return scores, {split: tuner.predict(prepared, split) for split in task.predicted if split in prepared.rows}


def _similarities(cell: PreparedCell) -> tuple[Scores, Mapping[str, Predictions]]:
    """Score the cosines of the two sentence vectors of every row; nothing is trained."""
    name, point, prepared = cell.cell.model, cell.cell.point, cell.task
    assert isinstance(point, SimilarityPoint)
    tokenizer = loading.load_tokenizer(name)
    model: PreTrainedModel = loading.load_model(name).to(choose_device("auto"))
    folder = locating.sentence_pooling(name) if point.pooling is None else None
    pooling = point.pooling or ("mean" if folder is None else folder.pooling)
    scores: dict[str, dict[str, float]] = {}
    for split in prepared.task.scored:
        rows = prepared.rows[split]
        pairs = [(row.text, row.pair) for row in rows if row.pair is not None]
        if len(pairs) < len(rows):
            raise CorpusError(f"{prepared.task.title} has rows of one text in '{split}'; similarity is of pairs.")
        cosines = inference.pair_similarities(model, tokenizer, pairs, pooling=pooling, max_length=point.length)
        scores[split] = score(prepared.task, split, rows, cosines.tolist())
    return scores, {}


@contextmanager
def _plainly() -> Iterator[None]:
    """Keep libraries quiet, and name the way out of a full device in one line."""
    try:
        with loading.quiet():
            yield
    except torch.OutOfMemoryError:
        raise TrainingError("The device is out of memory; --set batch_size or length lower.") from None


def _check_inputs(name: str, model: PreTrainedModel, tokenizer: Any, length: int) -> None:
    """Refuse tokens that the model has no embedding for, and rows that are longer than it takes."""
    shape = families.shape_of(model.config)
    check_padding(name, tokenizer)
    loading.check_fits_model(tokenizer, shape.vocabulary)
    if shape.positions is not None and length > shape.positions:
        raise ModelError(f"'{name}' takes {shape.positions} tokens, not {length}; --set length={shape.positions}.")
