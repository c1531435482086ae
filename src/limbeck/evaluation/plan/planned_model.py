"""`PlannedModel`, a model that is evaluated, as it is known before any work is done.

A *router* is a folder of sentence-transformers with two models, of which one reads queries and the other documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from limbeck.core import paths, records
from limbeck.errors import ModelError, RecipeError
from limbeck.evaluation.evaluators.sentence_vectors import fingerprint_of, readers_of
from limbeck.kinds.task import Task
from limbeck.models.families import Shape, shape_of
from limbeck.models.fingerprint import tokenizer_fingerprint
from limbeck.models.loading import load_config
from limbeck.models.sentences import trained_widths


@dataclass(frozen=True)
class PlannedModel:
    """A model that is evaluated.

    Attributes:
        name: The model's name, as the user gave it.
        fingerprint: Hash of its weights and tokenizer.
        tokenizer: Fingerprint of its tokenizer.
        shape: Its shape.
        on_task: Whether rows of students that were distilled on each task stand beside it: the run that made it
            distilled on labelled rows, or it is scored as it is.
        queries: Where the model is that reads queries, of a router's folder one of its two; else the model itself.
        documents: The same of documents.
        widths: Numbers of components to which its vectors may be cut, as it was trained for; from its configuration.
    """

    name: str
    fingerprint: str
    tokenizer: str
    shape: Shape
    on_task: bool = False
    queries: str = ""
    documents: str = ""
    widths: tuple[int, ...] = ()

    @property
    def published_as(self) -> tuple[str, int]:
        """Its shape and vocabulary, as published rows are matched by."""
        return f"{self.shape.layers}x{self.shape.hidden}", self.shape.vocabulary

    def check_is_one(self, task: Task) -> None:
        """Refuse a router for a task without queries.

        Raises:
            ModelError: naming its two models.
        """
        if self.queries != self.documents:
            raise ModelError(
                f"'{self.name}' sends queries and documents to different models, but {task.title} has "
                f"neither; give one of the two: '{self.queries}' or '{self.documents}'."
            )


def plan_models(names: Sequence[str], *, as_is: bool = False) -> list[PlannedModel]:
    """Look at every model, before any work is done.

    Args:
        names: As the user named them.
        as_is: Whether they are scored as they are.

    Raises:
        RecipeError: if a model is named twice.
        ModelError: if a model is not there, or its family is unknown.
    """
    for name in names:
        if list(names).count(name) > 1:
            raise RecipeError(f"The model '{name}' is named twice; name each model once.")
    return [_plan_model(name, as_is=as_is) for name in names]


def _plan_model(name: str, *, as_is: bool) -> PlannedModel:
    """Look at one model, see `plan_models`."""
    queries, documents = readers_of(name)
    config = load_config(queries)
    return PlannedModel(
        name=name,
        fingerprint=fingerprint_of(name),
        tokenizer=tokenizer_fingerprint(queries),
        shape=shape_of(config),
        on_task=as_is or _was_distilled_on_task(name),
        queries=queries,
        documents=documents,
        widths=trained_widths(config),
    )


def _was_distilled_on_task(name: str) -> bool:
    """Whether a model is the student of a run on labelled rows."""
    run = paths.run_of_student(Path(name).expanduser())
    return run is not None and records.load(records.Run, run).on_task
