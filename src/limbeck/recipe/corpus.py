"""The shorthands of a recipe's corpus: its sources alone, and a task that is known by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from limbeck.core.kinds import KINDS
from limbeck.corpus.settings import CorpusSpec
from limbeck.errors import LimbeckError
from limbeck.evaluation.tasks.registry import find_task


def sources_alone(value: Any) -> Any:
    """The keys of a corpus that is given by its sources alone; for validators."""
    if isinstance(value, str | list):
        return {"sources": value}
    return value


def expand_corpus(value: Any) -> Any:
    """The keys of a corpus, those that a task known by its name implies among them; for validators.

    Raises:
        ValidationError: for a name of no task, and a task that nothing is trained on.
    """
    corpus = sources_alone(value)
    if not isinstance(corpus, Mapping):
        return corpus
    task = corpus.get("task")
    if isinstance(task, str):
        task = {"name": task}
    is_known_by_name = isinstance(task, Mapping) and isinstance(task.get("name"), str) and "kind" not in task
    if not is_known_by_name:
        return corpus
    assert isinstance(task, Mapping)

    try:
        kind = find_task(task["name"]).kind
    except LimbeckError as error:
        raise _error_at_task(str(error), task) from None
    if KINDS[kind].of_vectors:
        message = f"nothing is trained on '{task['name']}', which compares sentence vectors: name another task"
        raise _error_at_task(message, task)
    return {**corpus, "task": {**task, "kind": kind}}


def _error_at_task(message: str, task: Any) -> ValidationError:
    """Make pydantic's error for the key `task` of a corpus; a validator of the whole corpus has no place of its own."""
    error = PydanticCustomError("value_error", "{message}", {"message": message})
    details = InitErrorDetails(type=error, loc=("task",), input=task)
    return ValidationError.from_exception_data("CorpusSpec", [details])


Corpus: TypeAlias = Annotated[
    CorpusSpec, BeforeValidator(expand_corpus, json_schema_input_type=CorpusSpec | str | list[str])
]
"""A corpus, or only its sources."""
