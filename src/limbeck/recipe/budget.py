"""The budget of a chosen recipe: how long each stage trains, by sizes and a guess of the machine's speed.

Time is estimated from floating-point operations: a forward pass takes about two for each weight and token, a backward
pass four. The teacher only runs forward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rich.filesize import decimal

from limbeck.core.blocks import counted
from limbeck.core.devices import choose_device
from limbeck.core.machine import available_cores
from limbeck.recipe.chosen_models import ChosenModels, count_weights
from limbeck.recipe.text_size import BYTES_OF_TOKEN

MINUTES = 30
"""Most minutes of training, all stages together, by the estimate from sizes."""
PASSES = 3
"""Most passes through text without labels."""

# Rough guesses. They only decide how long training takes, and the reason in the recipe calls them estimates.
TOKENS_OF_SENTENCE = 22
"""Mean number of tokens in a sentence."""
TOKENS_OF_BLOCK = 100
"""Mean number of tokens in a block of a document."""
_RATE_OF_CORE = 50e9
"""Floating-point operations a second of one core."""
_RATE_OF_ACCELERATOR = 30e12
"""Floating-point operations a second of an accelerator."""

_LEAST_STEPS = 100
"""Steps that are trained even where they take longer than `MINUTES`."""


@dataclass(frozen=True)
class Budget:
    """How long a stage trains.

    Args:
        training: The one argument of its training: `num_train_epochs` (passes) or `max_steps`.
        reason: The explanation for the recipe, in one line.
    """

    training: dict[str, int]
    reason: str


def choose_budget(
    models: ChosenModels,
    size: int | None,
    tokens_per_step: float,
    passes: int,
    *,
    stages: int = 1,
) -> Budget:
    """Choose the passes through the text, or a number of steps where these passes would take longer than `MINUTES`.

    Args:
        models: Teacher and student.
        size: Bytes of the text; None where they are not known before it is read.
        tokens_per_step: Estimated number of tokens in a step.
        passes: Most passes of a stage.
        stages: Number of stages that share the minutes.
    """
    # Operations a second, and the machine in words.
    rate, machine = _guess_rate()
    # Operations a token: 2 for each weight of the teacher (forward), 6 for each of the student (forward and backward).
    operations_per_token = 2 * count_weights(models.teacher.shape) + 6 * count_weights(models.student.shape)
    # Tokens that a stage can read in its share of the minutes.
    affordable_tokens = MINUTES * 60 * rate / operations_per_token / stages
    tokens = None if size is None else size / BYTES_OF_TOKEN
    text = "text of unknown size" if size is None else f"{decimal(size, precision=2)} of text"

    most_tokens = max(affordable_tokens, _LEAST_STEPS * tokens_per_step)
    if tokens is not None and tokens * passes <= most_tokens:
        training = {"num_train_epochs": passes}
        tokens_read = tokens * passes
        reason = f"{passes} passes through {text}"
    else:
        steps = max(_LEAST_STEPS, int(affordable_tokens / tokens_per_step))
        training = {"max_steps": steps}
        tokens_read = steps * tokens_per_step
        reason = f"{steps:,} steps through {text}"

    minutes = math.ceil(tokens_read * operations_per_token * stages / (rate * 60))
    if stages > 1:
        reason += f", in each of {stages} stages"
    reason += f", about {_minutes_in_words(minutes)} on {machine}, estimated from sizes, not measured"
    limit = f"{MINUTES} minutes"
    if minutes > MINUTES:
        limit += f" or {_LEAST_STEPS} steps"
    return Budget(training, f"{reason}; the limit is {limit}, and more steps make better students")


def _minutes_in_words(count: int) -> str:
    """A number of minutes in words."""
    noun = "minute" if count <= 1 else "minutes"
    return f"{count:,.0f} {noun}"


def _guess_rate() -> tuple[float, str]:
    """The operations a second of this machine, as a guess, and its name."""
    device = choose_device("auto").type
    if device != "cpu":
        return _RATE_OF_ACCELERATOR, f"one {device} device"
    cores = available_cores()
    return cores * _RATE_OF_CORE, counted(cores, "core")
