"""Overrides, a user's settings in place of a protocol's: `setting=value`, or `task.setting=value` for one task."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from limbeck.core.assignments import parse_assignment
from limbeck.errors import RecipeError, suggestion
from limbeck.evaluation.protocols.settings import FineTuning

_FORM = "setting=value or task.setting=value"
_SETTINGS = tuple(FineTuning.model_fields)
_SETTINGS_AS_IS = ("length", "stride", "metric", "max_scored_rows", "bf16", "pooling", "widths", "predict")
"""Settings that mean something where nothing is trained."""


class Override(NamedTuple):
    """Settings that replace those of a protocol.

    Attributes:
        task: Name of the task; None for all tasks.
        settings: Setting to value.
    """

    task: str | None
    settings: Mapping[str, Any]


def parse_overrides(texts: Sequence[str], tasks: Sequence[str], *, as_is: bool = False) -> list[Override]:
    """Read `setting=value` and `task.setting=value`; values are YAML.

    Args:
        texts: The overrides, as the user wrote them.
        tasks: Names of the tasks that are evaluated.
        as_is: Whether nothing is trained, so that settings of a training are refused.

    Returns:
        The overrides, in order.

    Raises:
        RecipeError: for text without a value, an unknown setting, or a task that is not evaluated.
    """
    overrides: list[Override] = []
    for text in texts:
        where = f"--set '{text}'"
        path, value = parse_assignment(text, where, _FORM)
        # The last dot divides task and setting, since names of tasks may have dots and names of settings have none.
        task, dot, setting = path.strip().rpartition(".")
        if dot and not task:
            raise RecipeError(f"{where} has no task before the dot; write {_FORM}.")
        if setting not in _SETTINGS:
            raise RecipeError(f"{where}: no setting '{setting}'.{suggestion(setting, _SETTINGS)}")
        if as_is and setting not in _SETTINGS_AS_IS:
            raise RecipeError(
                f"{where} is a training setting, but --as-is trains nothing; its settings are "
                f"{', '.join(_SETTINGS_AS_IS)}."
            )
        if task and task not in tasks:
            raise RecipeError(f"{where}: '{task}' is not one of the tasks to evaluate.{suggestion(task, tasks)}")
        overrides.append(Override(task or None, {setting: value}))
    return overrides
