"""Grid points: the settings of one fine-tuning, of a score by sentence vectors, or of a score by a head as it is.

A point is part of a cell's identity and of its row in `results.jsonl`.
"""

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from limbeck.corpus.rows.classes import ClassWeights, read_weights
from limbeck.errors import RecipeError
from limbeck.evaluation.plan.variants import Variant
from limbeck.evaluation.protocols.settings import FineTuning
from limbeck.kinds.registry import KINDS
from limbeck.kinds.task import Task


@dataclass(frozen=True)
class TrainingPoint:
    """One point of a task's grid: the settings of one fine-tuning.

    A further setting needs a field of `FineTuning` and a place in `training_points`. If it changes weights it is one
    more of `training_keywords`; if only scores, one more of `_SCORING_SETTINGS` in `identity`. Its default belongs in
    `_DEFAULTS_OF_LATER_SETTINGS`, so that the identities of finished cells stay.

    Attributes:
        learning_rate: The peak.
        epochs: Passes over the rows.
        batch_size: Rows of a step.
        length: Most tokens of a row or window.
        stride: Tokens that neighbouring windows share; 0 where there are no windows.
        warmup: Share of the steps in which the rate rises.
        schedule: Name of the schedule of the learning rate in `transformers`.
        weight_decay: Weight decay of AdamW.
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
        asymmetric: Whether a retrieval is also scored with the teacher's vectors of the documents.
        prompts: What is put before texts; in a retrieval what is put before queries and before documents. The same of
            the teacher follows. Empty where all of them are.
        dot: Whether a retrieval compares vectors by their inner products, as the model's folder says, not by cosines.
        teacher_length: Most tokens of a text that the teacher reads; None for `length`.
        reader_lengths: In a retrieval, the most tokens of a text for each model that reads texts: one or two models,
            and then the teacher. Empty where all read `length`.
    """

    length: int
    pooling: str | None
    max_scored_rows: int | None
    widths: tuple[int, ...] = ()
    teacher: str | None = None
    asymmetric: bool = False
    prompts: tuple[str, ...] = ()
    dot: bool = False
    teacher_length: int | None = None
    reader_lengths: tuple[int, ...] = ()

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All scores of a split: each width, asymmetric too where that is possible.

        The first variant is the score of the model's own whole vectors, which has the name of the split.
        """
        variants = []
        for width in (None, *self.widths):
            variants.append(Variant(width, asymmetric=False))
            if self.asymmetric:
                variants.append(Variant(width, asymmetric=True))
        return tuple(variants)


@dataclass(frozen=True)
class AsIsPoint:
    """How a model is scored by its head as it is, where nothing is trained.

    Attributes:
        length: Most tokens of a row or window.
        stride: Tokens that neighbouring windows share; 0 where there are no windows.
        bf16: Whether it computes in bfloat16.
        max_scored_rows: Rows drawn of every split; None takes all.
        classes: For each class of the task, the index of the model's output for it; None where the task has no classes.
        predict: Whether unlabelled splits are predicted although others are scored.
    """

    length: int
    stride: int
    bf16: bool
    max_scored_rows: int | None
    classes: tuple[int, ...] | None = None
    predict: bool = False


@dataclass(frozen=True)
class VersionedPoint:
    """The one point of an evaluator without settings.

    Attributes:
        version: Version of the evaluator; with another version its cells are run again.
    """

    version: str


Point = TrainingPoint | SimilarityPoint | AsIsPoint | VersionedPoint
_DEFAULTS_OF_LATER_SETTINGS: Mapping[str, Any] = {
    "class_weights": None,
    "choose_thresholds": False,
    "widths": (),
    "teacher": None,
    "asymmetric": False,
    "prompts": (),
    "reader_lengths": (),
    "dot": False,
    "teacher_length": None,
    "predict": False,
}
"""Settings that were added after a release, with their defaults.

At its default such a setting is left out of identities, so that cells keep the identities of earlier versions.
"""


def settings_of(point: Point) -> dict[str, Any]:
    """Return the settings of a point as records and identities have them."""
    settings = {}
    for name, value in asdict(point).items():
        is_later = name in _DEFAULTS_OF_LATER_SETTINGS
        if not is_later or value != _DEFAULTS_OF_LATER_SETTINGS[name]:
            settings[name] = value
    return settings


def stride_of(task: Task, settings: FineTuning) -> int:
    """Return the tokens that neighbouring windows share; 0 where the task has no windows."""
    return settings.stride if KINDS[task.kind].has_windows else 0


def training_points(task: Task, settings: FineTuning, *, bf16: bool) -> list[TrainingPoint]:
    """Return the grid points of a fine-tuning, rates innermost.

    Args:
        task: The task.
        settings: Its settings.
        bf16: Whether to fine-tune in bfloat16 where the settings leave it open.

    Raises:
        RecipeError: for weights or thresholds of classes that cannot be.
    """
    # Settings that are the same at all points.
    class_weights = None
    if settings.class_weights is not None:
        where = f"--set {task.name}.class_weights"
        class_weights = read_weights(settings.class_weights, task.labels, where)
    if settings.choose_thresholds and not KINDS[task.kind].chooses_thresholds:
        raise RecipeError(
            f"choose_thresholds applies only to tasks whose rows may have several classes, but {task.title} is a "
            f"task of {task.kind}; leave choose_thresholds out, or set it for one task alone (--set "
            "TASK.choose_thresholds=true)."
        )
    best_epoch_by = None
    if settings.keep == "best_epoch":
        best_epoch_by = settings.metric_of(task)
    computes_in_bf16 = settings.bf16
    if computes_in_bf16 is None:
        computes_in_bf16 = bf16

    points = []
    for epochs, rate in itertools.product(settings.epochs, settings.learning_rates):
        points.append(
            TrainingPoint(
                learning_rate=rate,
                epochs=epochs,
                batch_size=settings.batch_size,
                length=settings.length,
                stride=stride_of(task, settings),
                warmup=settings.warmup,
                schedule=settings.schedule,
                weight_decay=settings.weight_decay,
                group_by_length=settings.group_by_length,
                best_epoch_by=best_epoch_by,
                bf16=computes_in_bf16,
                max_train_rows=settings.max_train_rows,
                max_scored_rows=settings.max_scored_rows,
                class_weights=class_weights,
                choose_thresholds=settings.choose_thresholds,
            )
        )
    return points
