"""What the arguments of an objective's function say about how training calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from limbeck.errors import PluginError

_RULE = (
    "call the student's streams student…, then as many of the teacher's teacher…, then labels if it takes them; all "
    "else is a keyword with a default, or after a *"
)


def read_signature(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the fields of `Objective` that the arguments of a function tell.

    Arguments without a default are streams and labels, by their names; `valid`, `heads` and `projection` or
    `projections` among the others are keywords that training gives.

    Args:
        name: Of the objective, for messages.
        function: What computes it.

    Raises:
        PluginError: one line, if the names say something else.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise PluginError(f"The objective '{name}' cannot be added: its function is no function.") from None
    tensors = [parameter.name for parameter in parameters if _is_tensor(parameter)]
    keywords = {parameter.name for parameter in parameters} - set(tensors)
    student = len(list(takewhile(lambda each: each.startswith("student"), tensors)))
    teacher = len(list(takewhile(lambda each: each.startswith("teacher"), tensors[student:])))
    rest = tensors[student + teacher :]
    if not student or teacher not in (0, student) or rest not in ([], ["labels"]):
        raise PluginError(f"The objective '{name}' cannot be added: it takes ({', '.join(tensors)}); {_RULE}.")
    return {
        "student_streams": student,
        "takes_teacher": teacher > 0,
        "takes_labels": rest == ["labels"],
        "takes_valid": "valid" in keywords,
        "takes_heads": "heads" in keywords,
        "takes_projection": bool({"projection", "projections"} & keywords),
    }


def _is_tensor(parameter: inspect.Parameter) -> bool:
    given_in_order = parameter.kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return given_in_order and parameter.default is inspect.Parameter.empty
