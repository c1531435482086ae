"""Cells of a grid: a model, a task, a grid point and a seed, with their identities and shared fine-tunings."""

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from limbeck.core.hashing import fingerprint
from limbeck.core.kinds import KINDS
from limbeck.corpus.classes import ClassWeights, read_weights
from limbeck.errors import RecipeError
from limbeck.evaluation import task_files
from limbeck.evaluation.columns import Variant
from limbeck.evaluation.settings import FineTuning
from limbeck.evaluation.tasks import Task, TaskData, TaskRow


@dataclass(frozen=True)
class TrainingPoint:
    """One point of a task's grid: the settings of one fine-tuning.

    Attributes:
        learning_rate: The peak.
        epochs: Passes over the rows.
        batch_size: Rows of a step.
        length: Most tokens of a row or window.
        stride: Tokens that neighbouring windows share; 0 where there are no windows.
        warmup: Share of the steps in which the rate rises.
        schedule: As `transformers` names it.
        weight_decay: Of AdamW.
        group_by_length: Whether batches are of rows of similar length.
        best_epoch_by: The metric on the select split by which the weights of the best epoch are kept; None keeps the
            last.
        bf16: Whether it computes in bfloat16; the weights are float32 in any case.
        max_train_rows: Rows drawn for training; None takes all.
        max_scored_rows: Rows drawn of every other split; None takes all.
        class_weights: Weights of the classes in the loss, or `"balanced"`; None for none.
        choose_thresholds: Whether the thresholds of several classes a row are chosen on the select split.
    """

    learning_rate: float
    epochs: float
    batch_size: int
    length: int
    stride: int
    warmup: float
    schedule: str
    weight_decay: float
    group_by_length: bool
    best_epoch_by: str | None
    bf16: bool
    max_train_rows: int | None
    max_scored_rows: int | None
    class_weights: ClassWeights | None = None
    choose_thresholds: bool = False


@dataclass(frozen=True)
class SimilarityPoint:
    """How sentence vectors are made, where nothing is trained.

    Attributes:
        length: Most tokens of a text.
        pooling: `"mean"`, `"cls"`, or None for the pooling of the model's folder.
        max_scored_rows: Rows drawn of every split, of a retrieval queries; None takes all.
        widths: Components that the vectors are cut to, for further scores.
        teacher: The model whose cosines are compared with.
        asymmetric: Of a retrieval, whether queries look through the teacher's vectors of the documents too.
        prompts: What is put before texts, of a retrieval before queries and before documents, and the same of the
            teacher; empty where that is nothing.
        dot: Of a retrieval, whether the model's folder says that its vectors are compared by their inner product.
    """

    length: int
    pooling: str | None
    max_scored_rows: int | None
    widths: tuple[int, ...] = ()
    teacher: str | None = None
    asymmetric: bool = False
    prompts: tuple[str, ...] = ()
    dot: bool = False

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The scores of a split: first of whole vectors of the model alone, under the split's name."""
        return tuple(
            Variant(width, asymmetric)
            for width in (None, *self.widths)
            for asymmetric in ((False, True) if self.asymmetric else (False,))
        )


@dataclass(frozen=True)
class AsIsPoint:
    """How a model is scored by its head as it is, where nothing is trained.

    Attributes:
        length: Most tokens of a row or window.
        stride: Tokens that neighbouring windows share; 0 where there are no windows.
        bf16: Whether it computes in bfloat16.
        max_scored_rows: Rows drawn of every split; None takes all.
        classes: Which of the model's outputs each class of the task is, in their order; None where there are none.
        predict: Whether unlabelled splits are predicted although others are scored.
    """

    length: int
    stride: int
    bf16: bool
    max_scored_rows: int | None
    classes: tuple[int, ...] | None = None
    predict: bool = False


Point = TrainingPoint | SimilarityPoint | AsIsPoint
_SCORING_SETTINGS = ("best_epoch_by", "max_scored_rows", "choose_thresholds")
"""Settings of a training point that no weight depends on."""
_ADDED: Mapping[str, Any] = {
    "class_weights": None,
    "choose_thresholds": False,
    "widths": (),
    "teacher": None,
    "asymmetric": False,
    "prompts": (),
    "dot": False,
    "predict": False,
}
"""Settings that came after a release, with their defaults: at these they leave identities as they were."""


def settings_of(point: Point) -> dict[str, Any]:
    """Return the settings of a point as records and identities have them."""
    return {name: value for name, value in asdict(point).items() if name not in _ADDED or value != _ADDED[name]}


@dataclass(frozen=True)
class Cell:
    """A model on a task, at a grid point, with a seed.

    Attributes:
        model: As the user named it.
        task: Name of the task, or the path of its file.
        point: The settings.
        seed: Of head, order of rows and dropout; 0 where nothing is trained.
    """

    model: str
    task: str
    point: Point
    seed: int

    def describe(self) -> str:
        """Return it in a few words, for progress."""
        if not isinstance(self.point, TrainingPoint):
            return f"{self.model}, {self.task}"
        epochs = f"{self.point.epochs:g} epoch{'s' * (self.point.epochs != 1)}"
        return f"{self.model}, {self.task}, rate {self.point.learning_rate:g}, {epochs}, seed {self.seed}"


def grid(task: Task, settings: FineTuning, *, bf16: bool, as_is: bool = False) -> list[Point]:
    """Return the grid points of a task, rates innermost.

    Args:
        task: The task.
        settings: Its settings.
        bf16: Whether to fine-tune in bfloat16 where the settings leave it open.
        as_is: Whether models are scored by their heads as they are, at one point and, by default, in float32.

    Raises:
        RecipeError: for weights or thresholds of classes that cannot be.
    """
    if KINDS[task.kind].of_vectors:
        return [SimilarityPoint(settings.length, settings.pooling, settings.max_scored_rows)]
    stride = settings.stride if KINDS[task.kind].has_answers else 0
    if as_is:
        predict = settings.predict and bool(task.scored)
        return [AsIsPoint(settings.length, stride, bool(settings.bf16), settings.max_scored_rows, predict=predict)]
    shared: dict[str, Any] = {field.name: getattr(settings, field.name, None) for field in fields(TrainingPoint)}
    shared |= {
        "stride": stride,
        "best_epoch_by": (settings.metric or task.metrics[0]) if settings.keep == "best_epoch" else None,
        "bf16": bf16 if settings.bf16 is None else settings.bf16,
    }
    if settings.class_weights is not None:
        where = f"--set {task.name}.class_weights"
        shared["class_weights"] = read_weights(settings.class_weights, task.labels, where)
    if settings.choose_thresholds and not KINDS[task.kind].has_several:
        raise RecipeError(
            f"choose_thresholds is for rows that may have several classes, but {task.title} is a task of "
            f"{task.kind}; leave it out, or set it for one task (--set TASK.choose_thresholds=true)."
        )
    return [
        TrainingPoint(**(shared | {"learning_rate": rate, "epochs": epochs}))
        for epochs, rate in itertools.product(settings.epochs, settings.learning_rates)
    ]


def seeds(task: Task, count: int, *, as_is: bool = False) -> list[int]:
    """Return the seeds of a task's runs: 1, 2, …, or 0 alone where nothing is trained."""
    return [0] if as_is or KINDS[task.kind].of_vectors else list(range(1, count + 1))


def identity(cell: Cell, *, model: str, data: str, teacher: str | None = None) -> str:
    """Return the identity of a cell: a hash of its model, its rows, its settings and its seed.

    Where the model or the data lie, and the versions of the packages, are no part of it.

    Args:
        cell: The cell.
        model: Fingerprint of the model.
        data: Fingerprint of the task's rows.
        teacher: Fingerprint of the point's teacher, where it has one.
    """
    point = settings_of(cell.point) | ({} if teacher is None else {"teacher": teacher})
    return fingerprint({"model": model, "data": data, "point": point, "seed": cell.seed})


def training_identity(cell: Cell, *, model: str, training_set: str) -> str | None:
    """Return the identity of a cell's fine-tuning: a hash of everything that its weights depend on.

    That is the model, the rows to train on, the settings save those of scoring, and the seed. Cells of several tasks
    that have the same share one fine-tuning. Which epoch of it is kept may differ between them: no epoch's weights
    depend on that.

    Args:
        cell: The cell.
        model: Fingerprint of the model.
        training_set: Fingerprint of the rows to train on.

    Returns:
        None where nothing is trained.
    """
    if not isinstance(cell.point, TrainingPoint):
        return None
    point = {name: value for name, value in settings_of(cell.point).items() if name not in _SCORING_SETTINGS}
    return fingerprint({"model": model, "training_set": training_set, "point": point, "seed": cell.seed})


def data_fingerprint(data: TaskData) -> str:
    """Return a hash of the facts that a task is scored by and of every row of its splits."""
    task = data.task
    digest = hashlib.blake2b(digest_size=12)
    digest.update(json.dumps([task.name, task.kind, task.labels, task.select, task.answerable_only]).encode())
    for split in sorted(data.splits):
        digest.update(f"\0{split}\0".encode())
        _add_rows(digest, data.splits[split])
    return digest.hexdigest()


def training_set_fingerprint(data: TaskData) -> str:
    """Return a hash of the rows that a task is trained on, with the kind of its head and its classes.

    Tasks that are trained on the same rows of another task (AX and XNLI on MNLI's, MLQA and XQuAD on SQuAD's) have the
    same.
    """
    digest = hashlib.blake2b(digest_size=12)
    digest.update(json.dumps([data.task.kind, data.task.labels]).encode())
    _add_rows(digest, data.splits.get(task_files.TRAIN, ()))
    return digest.hexdigest()


def _add_rows(digest: hashlib.blake2b, rows: Sequence[TaskRow]) -> None:
    for row in rows:
        values = asdict(row)
        if row.ids is None:  # They came after a release.
            del values["ids"]
        digest.update(json.dumps(list(values.values()), ensure_ascii=False).encode())
