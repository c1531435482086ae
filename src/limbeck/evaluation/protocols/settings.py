"""`FineTuning`: everything that decides how one task is fine-tuned, chosen among and scored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from limbeck.core.yaml import Strict

Rate = Annotated[float, Field(gt=0, le=1)]
Epochs = Annotated[float, Field(gt=0, le=1000)]


class FineTuning(Strict):
    """The settings of one task; the product of rates and epochs is its grid.

    What is not here is as `transformers.TrainingArguments` has it: AdamW, gradients clipped to a norm of 1, no decay
    of biases and norms.
    """

    learning_rates: tuple[Rate, ...] = Field(min_length=1, description="Peak rates of the grid.")
    epochs: tuple[Epochs, ...] = Field(min_length=1, description="Epochs of the grid.")
    seeds: int = Field(default=1, ge=1, le=1000, description="Runs of every grid point, with seeds 1, 2, …")
    batch_size: int = Field(default=32, ge=1, description="Rows of a step.")
    length: int = Field(default=128, ge=4, description="Most tokens of a row, or of a window.")
    stride: int = Field(default=128, ge=0, description="Tokens of the context that neighbouring windows share.")
    warmup: float = Field(default=0.1, ge=0, lt=1, description="Share of the steps in which the rate rises.")
    schedule: Literal["linear", "cosine", "constant_with_warmup"] = Field(
        default="linear", description="What the rate does after the warm-up."
    )
    weight_decay: float = Field(default=0.01, ge=0, description="Of AdamW.")
    group_by_length: bool = Field(default=False, description="Make batches of rows of similar length.")
    keep: Literal["last", "best_epoch"] = Field(
        default="last", description="Score the last weights, or those of the epoch that is best on the select split."
    )
    pick: Literal["mean", "best"] = Field(
        default="mean", description="Choose the grid point by the mean over seeds, or the one best run of all."
    )
    metric: str | None = Field(default=None, description="Chooses and fills the tables; unset: the task's first.")
    max_train_rows: int | None = Field(default=None, ge=1, description="Train on so many rows, drawn once for all.")
    max_scored_rows: int | None = Field(default=None, ge=1, description="Score on so many rows of every split.")
    bf16: bool | None = Field(
        default=None, description="Compute in bfloat16; unset: on a GPU that is fast in it, never on a CPU."
    )
    pooling: Literal["mean", "cls"] | None = Field(
        default=None, description="Of sentence vectors; unset: as the model's folder says, else mean."
    )

    @field_validator("learning_rates", "epochs", mode="before")
    @classmethod
    def _one_is_a_grid(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int | float) else value
