"""From a budget of tokens to steps: as many as read that many real tokens of this corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from limbeck.errors import RecipeError
from limbeck.recipe.training_arguments import build_arguments


def rows_per_step(training: Mapping[str, Any]) -> int:
    """Return how many rows an optimizer step reads: of all devices, all accumulated micro-batches together.

    Args:
        training: Training arguments, as a recipe has them.
    """
    arguments = build_arguments(training, output="", seed=0, evaluates=False)
    return int(arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size)


def steps_of_stages(
    tokens: int, shares: Sequence[float], trainings: Sequence[Mapping[str, Any]], tokens_per_row: float
) -> tuple[int, ...]:
    """Share a budget among the stages of a method.

    Stage k ends where (share_1 + … + share_k) x tokens have been read, to the nearest step, so that roundings do not
    add up: all methods read the same number of tokens to half a step.

    Args:
        tokens: The budget, real tokens.
        shares: Of each stage; they add up to 1.
        trainings: The training arguments of each stage.
        tokens_per_row: Mean length of the corpus' rows in tokens.

    Returns:
        Steps of each stage.

    Raises:
        RecipeError: if a stage's share is less than half a step.
    """
    steps: list[int] = []
    read = wanted = 0.0
    for share, training in zip(shares, trainings, strict=True):
        wanted += share * tokens
        per_step = rows_per_step(training) * tokens_per_row
        count = round((wanted - read) / per_step)
        if count < 1:
            raise RecipeError(
                f"budget.tokens {tokens} gives a stage {share * tokens:.0f} tokens, and a step reads about "
                f"{per_step:.0f}; raise the budget, or lower training.per_device_train_batch_size."
            )
        steps.append(count)
        read += count * per_step
    return tuple(steps)
