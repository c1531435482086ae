"""Settings of one task: those of its fine-tuning, and of its scores."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from limbeck.core.metric_names import standard_metric
from limbeck.core.strict import Strict
from limbeck.kinds.task import Task

Rate = Annotated[float, Field(gt=0, le=1)]
Epochs = Annotated[float, Field(gt=0, le=1000)]


class FineTuning(Strict):
    """The settings of one task; the product of rates and epochs is its grid.

    All other settings are those of `transformers.TrainingArguments`: AdamW, gradients clipped to a norm of 1, no decay
    of biases and norms.

    Attributes:
        learning_rates: Peak rates of the grid.
        epochs: Epochs of the grid.
        seeds: Runs of every grid point, with seeds 1, 2, …
        batch_size: Rows of a step.
        length: Most tokens of a row, or of a window.
        stride: Tokens of the context that neighbouring windows share.
        warmup: Share of the steps in which the rate rises.
        schedule: Course of the rate after the warm-up.
        weight_decay: Of AdamW.
        group_by_length: Make batches of rows of similar length.
        keep: Score the last weights, or those of the epoch that is best on the select split.
        pick: Choose the grid point by the mean over seeds, or the one best run of all.
        metric: Chooses and fills the tables; unset: the task's first.
        max_train_rows: Train on so many rows, drawn once for all; of a ranking, on whole queries with so many pairs.
        max_scored_rows: Score on so many rows of every split; of a retrieval, on so many queries.
        bf16: Compute in bfloat16; unset: on a GPU that is fast in it, never on a CPU.
        pooling: Of sentence vectors; unset: as the model's folder says, else mean.
        class_weights: Weights of the classes in the loss: `balanced`, by name, or a list; see
            `limbeck.corpus.rows.classes.balance`.
        widths: Components that sentence vectors are cut to, for further columns; unset: those that the configuration of
            a model says it was trained for (`matryoshka_dimensions`).
        predict: Of models as they are, predict unlabelled splits too, for leaderboards; a task that has no others is
            predicted in any case.
        choose_thresholds: Where a row may have several classes, choose the probability from which each is given on the
            select split, for the other splits; else 0.5.
    """

    learning_rates: tuple[Rate, ...] = Field(min_length=1)
    epochs: tuple[Epochs, ...] = Field(min_length=1)
    seeds: int = Field(default=1, ge=1, le=1000)
    batch_size: int = Field(default=32, ge=1)
    length: int = Field(default=128, ge=4)
    stride: int = Field(default=128, ge=0)
    warmup: float = Field(default=0.1, ge=0, lt=1)
    schedule: Literal["linear", "cosine", "constant_with_warmup"] = "linear"
    weight_decay: float = Field(default=0.01, ge=0)
    group_by_length: bool = False
    keep: Literal["last", "best_epoch"] = "last"
    pick: Literal["mean", "best"] = "mean"
    metric: str | None = None
    max_train_rows: int | None = Field(default=None, ge=1)
    max_scored_rows: int | None = Field(default=None, ge=1)
    bf16: bool | None = None
    pooling: Literal["mean", "cls"] | None = None
    class_weights: Any = None
    predict: bool = False
    choose_thresholds: bool = False
    widths: tuple[Annotated[int, Field(ge=1)], ...] | None = None

    def metric_of(self, task: Task) -> str:
        """Return the metric that chooses grid points and epochs and fills the tables."""
        return self.metric or task.metrics[0]

    @field_validator("metric")
    @classmethod
    def _has_its_standard_name(cls, value: str | None) -> str | None:
        return None if value is None else standard_metric(value)

    @field_validator("learning_rates", "epochs", "widths", mode="before")
    @classmethod
    def _wrap_number(cls, value: Any) -> Any:
        """Take a number alone for a grid of one value."""
        return (value,) if isinstance(value, int | float) else value
