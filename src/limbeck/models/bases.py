"""Bases from a source's widths to a narrower student's: principal directions of its words or of its hidden states.

The *source* is the model from whose weights a student starts, usually its teacher. T is the source's width and S the
student's. A *basis* P is a matrix `[T, S]` with orthonormal columns: the student's hidden state is meant to be Pᵀ times
the source's. So the weight `[out, T]` of a map that reads the hidden state becomes W P, and the weight `[T, in]` of a
map that writes to it Pᵀ W. A basis that is None stands for the identity, where the widths are equal.

*Factorised* embeddings are narrower than the hidden states, with a map between the two; *plain* ones are as wide.
*Activations* are the moments of the source's blocks on random tokens, see `activations.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from limbeck.models.activations import BlockActivations, measure
from limbeck.models.directions import leading_directions, principal_directions
from limbeck.models.families import Shape, family_of, same_blocks, shape_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


class Bases(NamedTuple):
    """Bases `[T, S]` from the source's widths to the student's; None where the widths are equal.

    Attributes:
        hidden: Of the hidden states.
        embedding: Of the word embeddings, which may be factorised.
        explained: Share of the variance of the source's word embeddings that the narrowest basis keeps. If `hidden` was
            chosen by activations, it is the share of the hidden states. None where nothing is narrowed.
        measured: The activations of the source's blocks by layer, if they decide; else None.
    """

    hidden: Tensor | None = None
    embedding: Tensor | None = None
    explained: float | None = None
    measured: Mapping[int, BlockActivations] | None = None


def find_bases(
    source: PreTrainedModel,
    student_config: PreTrainedConfig,
    *,
    layers: Sequence[int],
    embeddings: str,
    narrow_by: str,
    seed: int,
) -> Bases:
    """Return the directions that a narrower student keeps; none at equal widths.

    Args:
        source: The source's base model.
        student_config: The student's configuration.
        layers: The source's layer of each student layer, counted from 1; empty for random layers.
        embeddings: `"copied"`, `"projected"`, `"averaged"` or `"random"`.
        narrow_by: `"weights"` or `"activations"`: what decides where layers are copied.
        seed: Decides the random tokens on which activations are measured.
    """
    student_shape = shape_of(student_config)
    source_shape = shape_of(source.config)
    narrows_layers = bool(layers) and not same_blocks(student_shape, source_shape)
    if narrows_layers and narrow_by == "activations":
        return active_bases(source, student_shape, source_shape, layers=layers, seed=seed)
    if narrows_layers or embeddings in ("projected", "averaged"):
        return word_bases(source, student_shape, source_shape)
    return Bases()


def word_bases(source: PreTrainedModel, student_shape: Shape, source_shape: Shape) -> Bases:
    """Return the bases of the principal directions of the source's word embeddings.

    Args:
        source: The source's base model.
        student_shape: The student's shape, nowhere wider than the source's.
        source_shape: The source's shape.
    """
    words = source.get_input_embeddings().weight
    hidden = None
    embedding = None
    shares = []
    if student_shape.hidden < source_shape.hidden:
        # Factorised embeddings reach the hidden states through a map.
        projection = embedding_projection(source)
        map_to_hidden = None if projection is None else projection.weight
        hidden, share = principal_directions(words, student_shape.hidden, through=map_to_hidden)
        shares.append(share)
    if student_shape.embedding < source_shape.embedding:
        # In plain embeddings both widths belong to one space, and both calls find the same directions, best first.
        embedding, share = principal_directions(words, student_shape.embedding)
        shares.append(share)
    # The narrowest basis keeps the smallest share.
    return Bases(hidden, embedding, explained=min(shares, default=None))


def active_bases(
    source: PreTrainedModel, student_shape: Shape, source_shape: Shape, *, layers: Sequence[int], seed: int
) -> Bases:
    """Return the bases by activations: the directions along which the hidden states of some layers vary most.

    Plain embeddings get the basis of the hidden states. If the embeddings of either model are factorised, they lie in
    another space than the hidden states, so their basis is that of `word_bases`.

    Args:
        source: The source's base model, of a family whose row of the table names the roles of its maps.
        student_shape: The student's shape, nowhere wider than the source's.
        source_shape: The source's shape.
        layers: Layers of the source that the student's start from, counted from 1.
        seed: Decides the tokens.
    """
    measured = measure(source, layers, seed)
    is_student_plain = student_shape.embedding == student_shape.hidden
    is_source_plain = source_shape.embedding == source_shape.hidden
    are_plain = is_student_plain and is_source_plain
    if student_shape.hidden == source_shape.hidden:
        # The hidden states keep all directions. Activations decide only which heads and neurons are kept.
        if are_plain:
            return Bases(measured=measured)
        bases_of_words = word_bases(source, student_shape, source_shape)
        return bases_of_words._replace(measured=measured)

    # The same layer of the source may be copied more than once, but counts once.
    distinct_layers = list(dict.fromkeys(layers))
    # The moments of the embeddings' output, which is the input of the first block, and of the output of each layer.
    moments = [measured[1].inputs, *(measured[layer].output for layer in distinct_layers)]
    # Moments are of hidden states with a 1 behind them. The last row and column belong to that 1.
    squares = [moment[:-1, :-1] for moment in moments]
    hidden, share = leading_directions(squares, student_shape.hidden)
    if are_plain:
        embedding: Tensor | None = hidden
    else:
        embedding = word_bases(source, student_shape, source_shape).embedding
    return Bases(hidden, embedding, explained=share, measured=measured)


def embedding_projection(model: PreTrainedModel) -> nn.Linear | None:
    """Return the map from factorised embeddings to the hidden width; ELECTRA has none at equal widths."""
    path = family_of(model.config).embedding_projection
    if path is None:
        return None
    # The family names a path, but a model at equal widths may lack the module.
    parent, _, name = path.rpartition(".")
    if name not in dict(model.get_submodule(parent).named_children()):
        return None
    projection = model.get_submodule(path)
    assert isinstance(projection, nn.Linear)
    return projection
