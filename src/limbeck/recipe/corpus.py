"""The shorthands of a recipe's corpus: its sources alone, and a task that is known by its name.

The functions run as validators of pydantic, before the corpus is read as a `CorpusSpec`. A validator gives back what it
does not understand, for which pydantic then has the error.
"""

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
    """Return the keys of a corpus, with the kind of a task that is given by its name alone; for validators.

    Raises:
        ValidationError: for a name of no task, and a task that nothing is trained on.
    """
    corpus = sources_alone(value)
    if not isinstance(corpus, Mapping):
        return corpus
    task = corpus.get("task")
    if isinstance(task, str):
        task = {"name": task}
    if not isinstance(task, Mapping):
        return corpus
    # A task with a kind is described in full by the recipe itself.
    name = task.get("name")
    if not isinstance(name, str) or "kind" in task:
        return corpus

    try:
        kind = find_task(name).kind
    except LimbeckError as error:
        raise _error_at_task(str(error), task) from None
    if KINDS[kind].of_vectors:
        message = f"nothing is trained on '{name}', which compares sentence vectors: name another task"
        raise _error_at_task(message, task)
    return {**corpus, "task": {**task, "kind": kind}}


def _error_at_task(message: str, task: Any) -> ValidationError:
    """Make pydantic's error for the key `task` of a corpus.

    A `ValueError` of a validator stands for the whole value that it validates, here the corpus. To name the key within
    it, the error has to be made by hand.
    """
    error = PydanticCustomError("value_error", "{message}", {"message": message})
    details = InitErrorDetails(type=error, loc=("task",), input=task)
    return ValidationError.from_exception_data("CorpusSpec", [details])


Corpus: TypeAlias = Annotated[
    CorpusSpec, BeforeValidator(expand_corpus, json_schema_input_type=CorpusSpec | str | list[str])
]
"""A corpus, or only its sources."""
