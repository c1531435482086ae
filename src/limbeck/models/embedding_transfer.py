"""Embeddings of a student from its teacher's: which way the widths allow, the bases, and the transfer
itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.errors import ModelError, suggestion
from limbeck.models.families import Shape, family_of
from limbeck.models.family_table import families
from limbeck.models.principal import principal_directions
from limbeck.models.transfer import Transfer

EMBEDDING_STRATEGIES = ("auto", "copied", "projected", "random")


@dataclass(frozen=True)
class Bases:
    """Bases `[T, S]` from the teacher's widths to the student's; None where the widths are equal.

    `explained` is the share of the variance of the teacher's word embeddings that the narrowest of them
    keeps.
    """

    hidden: Tensor | None = None
    embedding: Tensor | None = None
    explained: float | None = None


def embedding_mode(strategy: str, student: Shape, teacher: Shape) -> str:
    """Return how the embeddings start: `"copied"`, `"projected"` or `"random"`.

    Args:
        strategy: One of `EMBEDDING_STRATEGIES`; `"auto"` copies at equal widths, projects into a narrower
            student and starts a wider one at random.
        student: The student's shape.
        teacher: The teacher's shape.

    Raises:
        ModelError: for an unknown strategy, or one that the widths do not allow.
    """
    if strategy not in EMBEDDING_STRATEGIES:
        raise ModelError(f"Unknown embeddings '{strategy}'.{suggestion(strategy, EMBEDDING_STRATEGIES)}")
    if strategy == "random":
        return strategy
    ours, theirs = (student.embedding, student.hidden), (teacher.embedding, teacher.hidden)
    # A plain student cannot stand in for the map that a factorised teacher has after its embeddings.
    unmatched = (
        families[student.model_type].plain_drops_projection
        and teacher.embedding < teacher.hidden
        and student.embedding == student.hidden
    )
    if unmatched or ours[0] > theirs[0] or ours[1] > theirs[1]:
        possible = "random"
    else:
        possible = "copied" if ours == theirs else "projected"
    if strategy not in ("auto", possible):
        raise ModelError(
            f"Embeddings cannot be {strategy}: the student's are {_widths(student)} wide and the teacher's "
            f"{_widths(teacher)}; set embeddings: {possible}, or auto."
        )
    return possible


def _widths(shape: Shape) -> str:
    return str(shape.hidden) if shape.embedding == shape.hidden else f"{shape.embedding} (hidden {shape.hidden})"


def find_bases(teacher: PreTrainedModel, student: Shape, shape: Shape) -> Bases:
    """Return the principal directions that lead from the teacher's widths to the student's.

    Args:
        teacher: The teacher's base model.
        student: The student's shape, nowhere wider than the teacher's.
        shape: The teacher's shape.
    """
    words = teacher.get_input_embeddings().weight
    projection = _projection(teacher)
    hidden = embedding = None
    explained: list[float] = []
    if student.hidden < shape.hidden:
        through = None if projection is None else projection.weight
        found = principal_directions(words, student.hidden, through=through)
        hidden = found.basis
        explained.append(found.explained)
    if student.embedding < shape.embedding:
        # Without a map between them both widths share one space, and the narrower basis is the start of the
        # wider one.
        found = principal_directions(words, student.embedding)
        embedding = found.basis
        explained.append(found.explained)
    return Bases(hidden, embedding, min(explained, default=None))


def transfer_embeddings(transfer: Transfer, student: PreTrainedModel, teacher: PreTrainedModel, bases: Bases) -> None:
    """Copy or project the embeddings, and the map from a factorised width to the hidden width.

    Args:
        transfer: Writes and remembers.
        student: The student's base model.
        teacher: The teacher's base model.
        bases: See `find_bases`.
    """
    for path in family_of(student.config).embeddings:
        transfer.embed(path, student.get_submodule(path), teacher.get_submodule(path), bases.embedding)
    target, source = _projection(student), _projection(teacher)
    if target is None:
        return
    path = str(family_of(student.config).embedding_projection)
    if source is not None and bases.hidden is None and bases.embedding is None:
        transfer.copy(path, target, source)
        return
    if source is not None:
        weight, bias = source.weight.double(), source.bias.double()
        weight = weight if bases.embedding is None else weight @ bases.embedding
    else:
        weight, bias = _unfold(teacher, bases)
    if bases.hidden is not None:
        weight, bias = bases.hidden.T @ weight, bases.hidden.T @ bias
    transfer.linear(path, target, weight, bias)


def redraw_embeddings(transfer: Transfer, student: PreTrainedModel, fresh: PreTrainedModel) -> None:
    """Take the embeddings, and the map after factorised ones, from a freshly built student."""
    family = family_of(student.config)
    for path in family.embeddings:
        transfer.redraw(path, student.get_submodule(path), fresh.get_submodule(path))
    target, source = _projection(student), _projection(fresh)
    if target is not None and source is not None:
        transfer.redraw(str(family.embedding_projection), target, source)


def _projection(model: PreTrainedModel) -> nn.Linear | None:
    """Return the map from factorised embeddings to the hidden width; ELECTRA has none at equal widths."""
    path = family_of(model.config).embedding_projection
    if path is None or (shape := path.rpartition("."))[2] not in dict(model.get_submodule(shape[0]).named_children()):
        return None
    found = model.get_submodule(path)
    assert isinstance(found, nn.Linear)
    return found


def _unfold(teacher: PreTrainedModel, bases: Bases) -> tuple[Tensor, Tensor]:
    """Return the map from factorised embeddings back to what a plain teacher's blocks read.

    It is the basis itself, the transpose of what made the embeddings narrow, with the teacher's embedding
    norm folded
    in: the student's own norm stands before the map, leaves vectors of length √E where the teacher's has √H,
        and cannot
    hold the teacher's scale and shift.
    """
    assert bases.embedding is not None
    norm = teacher.get_submodule("embeddings.LayerNorm")
    assert isinstance(norm, nn.LayerNorm)
    wide, narrow = bases.embedding.shape
    weight = norm.weight.double()[:, None] * bases.embedding * math.sqrt(wide / narrow)
    return weight, norm.bias.double()
