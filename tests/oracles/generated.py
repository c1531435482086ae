"""Tests on generated inputs: some of them in every run, ten times as many where slow tests run."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy


def on_generated(count: int, **strategies: SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Decorate a check of one input, so that it becomes a test of many.

    Args:
        count: Inputs of the slow test; the other one has a tenth.
        strategies: Makes the value of each argument of the check.
    """

    def decorate(check: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("inputs", [count // 10, pytest.param(count, marks=pytest.mark.slow)])
        def test(inputs: int) -> None:
            # The same inputs in every run; a check that fails prints the smallest input that it fails on.
            run = settings(
                max_examples=inputs,
                derandomize=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            run(given(**strategies)(check))()

        return test

    return decorate
