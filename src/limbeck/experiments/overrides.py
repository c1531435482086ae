"""`--set`: settings of all tasks, or of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from limbeck.core.yaml import parse_yaml
from limbeck.errors import RecipeError, suggestion
from limbeck.evaluation.protocols import FineTuning

Override = tuple[str | None, Mapping[str, Any]]


def parse_overrides(texts: Sequence[str], tasks: Sequence[str]) -> list[Override]:
    """Read `setting=value` and `task.setting=value`; values are YAML.

    Args:
        texts: As the user wrote them.
        tasks: Names of the tasks that are evaluated.

    Returns:
        (task or None for all, settings) each, in order.

    Raises:
        RecipeError: for text without a value, an unknown setting, or a task that is not evaluated.
    """
    found: list[Override] = []
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals:
            raise RecipeError(f"--set '{text}' has no value; write setting=value or task.setting=value.")
        task, dot, setting = path.strip().rpartition(".")
        if dot and not task:
            raise RecipeError(
                f"--set '{text}' names no task before the dot; write setting=value or task.setting=value."
            )
        if setting not in FineTuning.model_fields:
            raise RecipeError(f"--set '{text}': no setting '{setting}'.{suggestion(setting, FineTuning.model_fields)}")
        if task and task not in tasks:
            raise RecipeError(f"--set '{text}': '{task}' is not among the tasks.{suggestion(task, tasks)}")
        found.append((task or None, {setting: parse_yaml(value, f"--set '{text}'")}))
    return found
