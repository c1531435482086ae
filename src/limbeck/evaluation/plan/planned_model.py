"""`PlannedModel`, a model that is evaluated, as it is known before any work is done.

A *router* is a folder of sentence-transformers with two models, of which one reads queries and the other documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from limbeck.core import paths, records
from limbeck.core.hashing import fingerprint
from limbeck.errors import ModelError, RecipeError
from limbeck.kinds.task import Task
from limbeck.models.families import Shape, shape_of
from limbeck.models.fingerprint import model_fingerprint, tokenizer_fingerprint
from limbeck.models.loading import load_config
from limbeck.models.sentence_reader import routes_of
from limbeck.models.sentences import trained_widths
from limbeck.models.tokenizers import load_tokenizer, pads_against_positions


@dataclass(frozen=True)
class PlannedModel:
    """A model that is evaluated.

    Attributes:
        name: The model's name, as the user gave it.
        fingerprint: Hash of its weights and tokenizer.
        tokenizer: Fingerprint of its tokenizer.
        shape: Layers, widths and vocabulary.
        on_task: Whether it can be compared with published students that were distilled on each task. This is so for
            students that limbeck distilled on labelled rows, and for models that are scored as they are.
        queries: The model that reads queries: the model itself, or one of the two models in a router's folder.
        documents: The model that reads documents, likewise.
        widths: Numbers of components that its vectors were trained to be cut to, from its configuration.
        pads_against_positions: Whether its tokenizer pads on the left, although the model counts positions from there.
    """

    name: str
    fingerprint: str
    tokenizer: str
    shape: Shape
    on_task: bool = False
    queries: str = ""
    documents: str = ""
    widths: tuple[int, ...] = ()
    pads_against_positions: bool = False

    @property
    def published_as(self) -> tuple[str, int]:
        """Layers x width and the size of the vocabulary, by which rows of papers' tables are found for it."""
        return f"{self.shape.layers}x{self.shape.hidden}", self.shape.vocabulary

    def check_is_one(self, task: Task) -> None:
        """Refuse a router for a task without queries.

        Raises:
            ModelError: naming its two models.
        """
        if self.queries != self.documents:
            raise ModelError(
                f"'{self.name}' sends queries and documents to different models, but {task.title} has neither "
                f"queries nor documents; give one of the two models: '{self.queries}' or '{self.documents}'."
            )


def plan_models(names: Sequence[str], *, as_is: bool = False) -> list[PlannedModel]:
    """Read what is needed of every model to plan an evaluation: hashes, configuration and where it came from.

    Args:
        names: The models, as the user named them.
        as_is: Whether models are scored as they are, without fine-tuning.

    Raises:
        RecipeError: if a model is named twice.
        ModelError: if a model is not there, or its family is unknown.
    """
    for name in names:
        if list(names).count(name) > 1:
            raise RecipeError(f"The model '{name}' is named twice; name each model once.")
    return [_plan_model(name, as_is=as_is) for name in names]


def _plan_model(name: str, *, as_is: bool) -> PlannedModel:
    """Read what is needed of one model, see `plan_models`."""
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
        pads_against_positions=pads_against_positions(load_tokenizer(queries), config),
    )


def readers_of(name: str) -> tuple[str, str]:
    """Return the model that reads queries and the one that reads documents; except for routers, both are `name`.

    Raises:
        ModelError: for a router whose models are no whole folders.
    """
    return routes_of(name) or (name, name)


def fingerprint_of(name: str) -> str:
    """Return the fingerprint of a model; of a router's folder that of both of its models."""
    queries, documents = readers_of(name)
    if queries == documents:
        return model_fingerprint(name)
    return fingerprint([model_fingerprint(queries), model_fingerprint(documents)])


def _was_distilled_on_task(name: str) -> bool:
    """Whether a model is the student of a run on labelled rows."""
    run = paths.run_of_student(Path(name).expanduser())
    return run is not None and records.load(records.Run, run).on_task
