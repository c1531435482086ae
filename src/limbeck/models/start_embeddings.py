"""The start of a student's embeddings: copied from the source, or projected onto its principal directions.

*Factorised* embeddings are narrower than the hidden states, with a map between the two (`embedding_projection`);
*plain* ones are as wide. A *basis* `[T, S]` maps the source's width T to the student's S, see `bases.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor, nn

from limbeck.errors import ModelError, suggestion
from limbeck.models.bases import Bases, embedding_projection
from limbeck.models.block_narrowing import narrow_norm
from limbeck.models.families import Shape, base_model, family_of
from limbeck.models.family_table import UNLISTED, row_of
from limbeck.models.start_step import Start, StartSettings, StartStep
from limbeck.models.transfer import Origin, Transfer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EMBEDDING_STRATEGIES = ("auto", "copied", "projected", "random")


class Embeddings(StartStep):
    """Word, position and segment embeddings, and the map behind factorised ones."""

    name = "embeddings"
    place = "embeddings"

    def check(self, student: Shape, source: Shape, settings: StartSettings) -> None:
        """Refuse embeddings of another vocabulary."""
        mode = embedding_mode(settings.embeddings, student, source)
        if mode != "random" and student.vocabulary != source.vocabulary:
            raise ModelError(
                f"The student's vocabulary has {student.vocabulary} tokens and the teacher's "
                f"{source.vocabulary}; use the teacher's tokenizer, or set embeddings: random."
            )

    def apply(self, start: Start) -> None:
        """Copy, project or draw the embeddings."""
        student = base_model(start.student)
        if start.embeddings == "random":
            start.transfer.take(_embedding_paths(student), student, start.fresh, "random")
            return
        source = base_model(start.source)
        _transfer_tables(start.transfer, student, source, start.bases)
        _transfer_projection(start.transfer, student, source, start.bases)


def embedding_mode(strategy: str, student: Shape, source: Shape) -> str:
    """Return how the embeddings start: `"copied"`, `"projected"` or `"random"`.

    Args:
        strategy: One of `EMBEDDING_STRATEGIES`; `"auto"` copies at equal widths, projects into a narrower
            student and starts a wider one at random.
        student: The student's shape.
        source: The source's shape.

    Raises:
        ModelError: for an unknown strategy, or one that the widths do not allow.
    """
    if strategy not in EMBEDDING_STRATEGIES:
        raise ModelError(f"Unknown embeddings '{strategy}'.{suggestion(strategy, EMBEDDING_STRATEGIES)}")
    if strategy == "random":
        return strategy
    possible = _possible_mode(student, source)
    if strategy not in ("auto", possible):
        raise ModelError(
            f"Embeddings cannot be {strategy}: the student's are {_widths(student)} wide and the teacher's "
            f"{_widths(source)}; set embeddings: {possible}, or auto."
        )
    return possible


def _possible_mode(student: Shape, source: Shape) -> str:
    """Return the start that takes over the most, of those that the widths allow."""
    has_same_widths = student.embedding == source.embedding and student.hidden == source.hidden
    row = row_of(student.model_type)
    # In a family outside of the table it is not known which matrices are tables of embeddings, so none is projected.
    if row is UNLISTED and not has_same_widths:
        return "random"
    # A plain student of such a family has no map after its embeddings, which those of a factorised source need.
    is_plain = student.embedding == student.hidden
    if row.plain_drops_projection and is_plain and source.embedding < source.hidden:
        return "random"
    if student.embedding > source.embedding or student.hidden > source.hidden:
        return "random"
    return "copied" if has_same_widths else "projected"


def _widths(shape: Shape) -> str:
    if shape.embedding == shape.hidden:
        return str(shape.hidden)
    return f"{shape.embedding} (hidden {shape.hidden})"


def _transfer_tables(transfer: Transfer, student: PreTrainedModel, source: PreTrainedModel, bases: Bases) -> None:
    """Copy or project the tables of embeddings, and the norms beside them.

    Args:
        transfer: Writes and remembers.
        student: The student's base model.
        source: The source's base model.
        bases: See `Start.bases`.
    """
    for path in family_of(student.config).embeddings:
        module = source.get_submodule(path)
        target = student.get_submodule(path)
        if bases.embedding is None:
            transfer.write(path, target, module.state_dict(), "copied")
            continue
        # Tables are projected without taking off their mean, so that a padding row of zeros stays zero. Norms get
        # values only by activations; `write` resets those without.
        values = {}
        for name, tensor in module.state_dict().items():
            if tensor.dim() == 2:
                values[name] = tensor.double() @ bases.embedding
        if bases.measured is not None and bases.hidden is bases.embedding:
            values |= _narrow_norms(module, bases.measured[1].inputs, bases.embedding)
        transfer.write(path, target, values, "projected")


def _transfer_projection(transfer: Transfer, student: PreTrainedModel, source: PreTrainedModel, bases: Bases) -> None:
    """Copy or project the map from factorised embeddings to the hidden width; arguments as of `_transfer_tables`."""
    target = embedding_projection(student)
    if target is None:
        return
    projection = embedding_projection(source)
    if projection is None:
        # The source is plain, and the student's embeddings are factorised.
        weight, bias = _unfold(source, bases)
    else:
        weight = projection.weight.double()
        bias = projection.bias.double()
        if bases.embedding is not None:
            weight = weight @ bases.embedding
    if bases.hidden is not None:
        weight = bases.hidden.T @ weight
        bias = bases.hidden.T @ bias
    origin: Origin = "projected"
    if bases.hidden is None and bases.embedding is None:
        origin = "copied"
    path = str(family_of(student.config).embedding_projection)
    transfer.write(path, target, {"weight": weight, "bias": bias}, origin)


def _narrow_norms(embeddings: nn.Module, outputs: Tensor, basis: Tensor) -> dict[str, Tensor]:
    """Return the scale and shift of the norm at the end of the embeddings, by their names in the embeddings.

    Args:
        embeddings: The source's module.
        outputs: The moment of its output, see `activations.py`.
        basis: The basis of hidden states and embeddings.
    """
    values = {}
    for name, module in embeddings.named_modules():
        if isinstance(module, nn.LayerNorm):
            for key, value in narrow_norm(module, outputs, basis).items():
                values[f"{name}.{key}"] = value
    return values


def _embedding_paths(model: PreTrainedModel) -> list[str]:
    """Return the paths of the embeddings, and of the map after factorised ones."""
    family = family_of(model.config)
    paths = list(family.embeddings)
    if embedding_projection(model) is not None:
        paths.append(str(family.embedding_projection))
    return paths


def _unfold(source: PreTrainedModel, bases: Bases) -> tuple[Tensor, Tensor]:
    """Return the map from a student's factorised embeddings to the input of a plain source's blocks: weight and bias.

    With P `[H, E]` the basis of the embeddings, and γ and β the scale and shift of the source's embedding norm, it is
    e -> diag(γ) P e √(H / E) + β. The student's own norm comes before the map, and gives vectors of length √E where the
    source's norm gives √H before its scale.
    """
    assert bases.embedding is not None
    norm = source.get_submodule("embeddings.LayerNorm")
    assert isinstance(norm, nn.LayerNorm)
    hidden_width, embedding_width = bases.embedding.shape
    # [H, E].
    weight = norm.weight.double()[:, None] * bases.embedding * math.sqrt(hidden_width / embedding_width)
    return weight, norm.bias.double()
