"""Tokens to steps."""

import pytest

from limbeck.comparison.cells import rows_per_step, steps_of_stages
from limbeck.errors import RecipeError

BATCH = {"per_device_train_batch_size": 8, "bf16": False}


def test_a_step_reads_all_accumulated_batches_and_a_stage_the_budget():
    assert (rows_per_step(BATCH), rows_per_step({**BATCH, "gradient_accumulation_steps": 4})) == (8, 32)
    assert all(steps_of_stages(tokens, [1.0], [BATCH], 12.5) == (100,) for tokens in (10_000, 10_049))


def test_stages_share_it_to_the_step():
    shares = [0.7, 0.3]
    for tokens in range(1000, 3000, 37):
        steps = steps_of_stages(tokens, shares, [BATCH, BATCH], 12.5)
        assert sum(steps) == round(tokens / 100)
        assert abs(steps[0] - 0.7 * tokens / 100) <= 0.5


def test_stages_of_other_batches_read_the_same_tokens():
    steps = steps_of_stages(6400, [0.5, 0.5], [BATCH, {**BATCH, "gradient_accumulation_steps": 2}], 10.0)
    assert steps == (40, 20)


def test_too_small_a_budget_is_refused():
    with pytest.raises(RecipeError, match="budget.tokens 100 gives a stage 50 tokens, and a step reads about 80"):
        steps_of_stages(100, [0.5, 0.5], [BATCH, BATCH], 10.0)
    with pytest.raises(RecipeError, match="raise the budget"):
        steps_of_stages(30, [1.0], [BATCH], 10.0)
