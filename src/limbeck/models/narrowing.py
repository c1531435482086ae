"""Starting a student's tensors from a wider or equal teacher's, and the record of how each came about.

Written with T for the teacher's width and S for the student's. A basis P is `[T, S]` with orthonormal columns: the
student's hidden state stands for Pᵀ times the teacher's. A map that reads the hidden state is multiplied by P, one that
writes to it by Pᵀ. None stands for the identity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from limbeck.errors import ModelError, suggestion
from limbeck.models.activations import BlockActivations, Heads, fix_signs, leading_directions, measure, narrow_norm
from limbeck.models.families import Shape, family_of
from limbeck.models.family_table import UNLISTED, BlockRoles, row_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass
class Transfer:
    """Writes a student's tensors and remembers how each came about, by the name it has in the base model."""

    copied: list[str] = field(default_factory=list)
    projected: list[str] = field(default_factory=list)
    reset: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)

    def write(self, prefix: str, target: nn.Module, given: Mapping[str, Tensor], how: list[str]) -> None:
        """Write every tensor of a module in place, in the target's dtype; a norm that is not given is reset.

        A norm's scale and shift belong to the teacher's features one by one. The features of a narrower student are
        mixtures of them, so none of the teacher's values is right for any: scale 1 and shift 0.

        Args:
            prefix: The module's name.
            target: The student's module.
            given: The values, by their name in the module.
            how: One of the lists, for those that are given.
        """
        for own, tensor in target.state_dict().items():
            name, value = f"{prefix}.{own}", given.get(own)
            if value is None and tensor.dim() > 1:
                raise ModelError(
                    f"'{name}' of the student has no counterpart in the teacher's layer that it starts from, which "
                    "is built differently; start from other layers, or set layers: random."
                )
            if value is None:
                tensor.fill_(0.0 if own.endswith("bias") else 1.0)
                self.reset.append(name)
                continue
            if tensor.shape != value.shape:
                raise ModelError(
                    f"'{name}' is {list(tensor.shape)} in the student but {list(value.shape)} from the teacher; "
                    "derive the student's configuration from this teacher's."
                )
            tensor.copy_(value)
            how.append(name)

    def take(self, paths: Iterable[str], target: nn.Module, source: nn.Module, how: list[str]) -> None:
        """Write the modules at some paths as those of another model, see `write`."""
        for path in paths:
            self.write(path, target.get_submodule(path), source.get_submodule(path).state_dict(), how)


def narrow_block(
    transfer: Transfer,
    prefix: str,
    target: nn.Module,
    source: nn.Module,
    shapes: tuple[Shape, Shape],
    basis: Tensor | None,
    measured: BlockActivations | None = None,
) -> None:
    """Copy a block into a narrower one, by the role of each linear map.

    Whole heads are kept, the strongest first in line where the student has fewer. Inside a kept head its leading
    dimensions are kept where the student's heads are narrower, or, with activations, the best of its rank (`Heads`). No
    slice crosses a head boundary. Of the feed-forward neurons the strongest are kept. Strength is the product of the
    norms of the weights into a unit and out of it; with activations, the mean square of what a head writes, and the
    variance of what a neuron does: the mean of neurons that are left out goes into the bias.

    Args:
        transfer: Writes and remembers.
        prefix: The block's name.
        target: The student's block.
        source: The teacher's block.
        shapes: Of the student and of the teacher; see `check_narrowing`.
        basis: `[T, S]`, or None where the hidden widths are equal.
        measured: The teacher's block on random tokens; None goes by weights alone.
    """
    roles = row_of(shapes[0].model_type).roles
    assert roles is not None
    going_in, coming_out = (roles.query, roles.key, roles.value, roles.ffn_in), (roles.attention_output, roles.ffn_out)
    maps = {name: _linear(source, name) for name in (*going_in, *coming_out)}
    reduced = dict(maps)
    if basis is not None:
        reduced = {name: (maps[name][0] @ basis, maps[name][1]) for name in going_in}
        reduced |= {name: (basis.T @ maps[name][0], basis.T @ maps[name][1]) for name in coming_out}
    if measured is None:
        found = _kept_by_weights(roles, maps, reduced, shapes)
    else:
        found = _kept_by_activations(roles, reduced, shapes, basis, measured)
    for name, (weight, bias) in found.items():
        given = {"weight": weight, "bias": bias}
        transfer.write(f"{prefix}.{name}", target.get_submodule(name), given, transfer.projected)
    for name in roles.norms:
        norm, how, norms = source.get_submodule(name), transfer.copied, {}
        if basis is None:
            norms = norm.state_dict()
        elif measured is not None:
            norms, how = narrow_norm(norm, measured.norms[name], basis), transfer.projected
        transfer.write(f"{prefix}.{name}", target.get_submodule(name), norms, how)


_Maps: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]
"""Weights `[out, in]` and biases `[out]` of a block's linear maps by name, in float64."""


def _kept_by_weights(roles: BlockRoles, maps: _Maps, reduced: _Maps, shapes: tuple[Shape, Shape]) -> _Maps:
    """Return the strongest heads and neurons of maps that were brought to the student's width."""
    student, teacher = shapes
    strength = _strength(maps[roles.value][0], maps[roles.attention_output][0])
    heads = strongest(strength.view(teacher.heads, teacher.head_size).sum(1), student.heads)
    rows = (heads[:, None] * teacher.head_size + torch.arange(student.head_size, device=heads.device)).flatten()
    neurons = strongest(_strength(maps[roles.ffn_in][0], maps[roles.ffn_out][0]), student.ffn)
    found = {name: (reduced[name][0][rows], reduced[name][1][rows]) for name in (roles.query, roles.key, roles.value)}
    found[roles.ffn_in] = (reduced[roles.ffn_in][0][neurons], reduced[roles.ffn_in][1][neurons])
    for name, kept in ((roles.attention_output, rows), (roles.ffn_out, neurons)):
        found[name] = (reduced[name][0][:, kept], reduced[name][1])
    return found


def _kept_by_activations(
    roles: BlockRoles, reduced: _Maps, shapes: tuple[Shape, Shape], basis: Tensor | None, measured: BlockActivations
) -> _Maps:
    """Return what the maps do most on inputs as they were measured, at the student's width."""
    student, teacher = shapes
    projections = (roles.query, roles.key, roles.value)
    reading = [torch.cat([weight, bias[:, None]], 1) for weight, bias in (reduced[name] for name in projections)]
    query, key, value = (part.view(teacher.heads, teacher.head_size, -1) for part in reading)
    writing, writing_bias = reduced[roles.attention_output]
    inputs = measured.inputs
    if basis is not None:
        seen = torch.block_diag(basis, basis.new_ones(1, 1))
        inputs = seen.T @ inputs @ seen
    output = writing.view(len(writing), teacher.heads, teacher.head_size).transpose(0, 1)
    every = Heads(query, key, value, output, inputs)
    *narrowed, output = every.narrow(strongest(every.strength(), student.heads), student.head_size)
    found = {
        name: (part[..., :-1].flatten(0, 1), part[..., -1].flatten())
        for name, part in zip(projections, narrowed, strict=True)
    }
    found[roles.attention_output] = (output.transpose(0, 1).flatten(1), writing_bias)
    (into, into_bias), (out, out_bias) = reduced[roles.ffn_in], reduced[roles.ffn_out]
    neurons = strongest(measured.neurons.variance * out.square().sum(0), student.ffn)
    left_out = measured.neurons.mean.index_fill(0, neurons, 0.0)
    found[roles.ffn_in] = (into[neurons], into_bias[neurons])
    found[roles.ffn_out] = (out[:, neurons], out_bias + out @ left_out)
    return found


def _linear(block: nn.Module, name: str) -> tuple[Tensor, Tensor]:
    """Return a linear map's weight `[out, in]` and bias `[out]` in float64."""
    found = block.get_submodule(name)
    assert isinstance(found, nn.Linear)
    assert found.bias is not None  # every family with roles has biases
    return found.weight.double(), found.bias.double()


def _strength(going_in: Tensor, coming_out: Tensor) -> Tensor:
    """Return the squared strength of each inner unit: `[inner, in]` and `[out, inner]` -> `[inner]`."""
    return going_in.square().sum(1) * coming_out.square().sum(0)


def strongest(strength: Tensor, count: int) -> Tensor:
    """Return the indices of the `count` strongest units, in their own order; `[units]` -> `[count]`."""
    order = torch.sort(strength, descending=True, stable=True).indices[:count]
    return order.sort().values


def check_narrowing(student: Shape, teacher: Shape) -> None:
    """Refuse to copy blocks between shapes that cannot be matched head by head.

    Raises:
        ModelError: naming the numbers, the reason and what would work.
    """
    way_out = "or set layers: random"
    family = row_of(student.model_type)
    if family.roles is None:
        raise ModelError(
            f"Blocks of {student.model_type} can only be copied between equal shapes, because "
            f"{family.roles_missing}; the student is {student}, the teacher {teacher}: give the student the "
            f"teacher's numbers, {way_out}."
        )
    for what, key in (("hidden width", "hidden"), ("heads", "heads"), ("FFN width", "ffn")):
        ours, theirs = getattr(student, key), getattr(teacher, key)
        if ours > theirs:
            raise ModelError(
                f"The student's {what} {ours} exceeds the teacher's {theirs}, so its layers cannot be "
                f"copied; set {key} to at most {theirs}, {way_out}."
            )
    if student.head_size > teacher.head_size:
        width = max(teacher.heads, student.hidden - student.hidden % teacher.heads)
        wider = "" if width == student.hidden else f"hidden to {width} and "
        raise ModelError(
            f"The student's heads are {student.head_size} wide and the teacher's {teacher.head_size}, so a "
            f"copy would cut across heads; set {wider}heads to {teacher.heads}, {way_out}."
        )
    if teacher.embedding < student.hidden < teacher.hidden:
        raise ModelError(
            f"The teacher's word embeddings span only {teacher.embedding} directions, too few to tell which "
            f"{student.hidden} of its {teacher.hidden} to keep; set hidden to {teacher.hidden}, {way_out}."
        )


_CHUNK = 65_536


def principal_directions(rows: Tensor, width: int, *, through: Tensor | None = None) -> tuple[Tensor, float]:
    """Return the leading principal directions of a matrix's rows (PCA).

    Works on the H x H covariance in float64, in chunks of rows, so a vocabulary of 250 000 needs no second
    copy of its embeddings. The sign of each direction is fixed, so the same rows give the same basis.

    Args:
        rows: `[V, E]`, one row a token.
        width: How many directions, 1..H.
        through: `[H, E]`, a map applied to the rows first (the projection of factorised embeddings); H = E
            without it.

    Returns:
        An orthonormal basis `[H, width]` in float64, the most important direction first and the largest entry of each
        positive, and the share of the variance that it keeps, 0..1.
    """
    rows = rows.detach()
    mean = rows.double().mean(0) if len(rows) <= _CHUNK else rows.mean(0, dtype=torch.float64)
    covariance = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64, device=rows.device)
    for chunk in rows.split(_CHUNK):
        centred = chunk.double() - mean
        covariance += centred.T @ centred
    if through is not None:
        through = through.detach().double()
        covariance = through @ covariance @ through.T
    values, vectors = torch.linalg.eigh(covariance)
    basis = vectors.flip(1)[:, :width]
    spread = values.clamp(min=0).flip(0)
    explained = float(spread[:width].sum() / spread.sum()) if float(spread.sum()) > 0 else 1.0
    return fix_signs(basis), explained


EMBEDDING_STRATEGIES = ("auto", "copied", "projected", "random")


class Bases(NamedTuple):
    """Bases `[T, S]` from the teacher's widths to the student's; None where the widths are equal.

    `explained` is the share of the variance of the teacher's word embeddings that the narrowest of them keeps, or of
    its hidden states where activations decide `hidden`; `measured` are then the teacher's blocks by layer.
    """

    hidden: Tensor | None = None
    embedding: Tensor | None = None
    explained: float | None = None
    measured: Mapping[int, BlockActivations] | None = None


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
    # A plain student cannot stand in for the map that a factorised teacher has after its embeddings. Without a row
    # nothing tells tables from other matrices of their width.
    row = row_of(student.model_type)
    unmatched = (row is UNLISTED and ours != theirs) or (
        row.plain_drops_projection and teacher.embedding < teacher.hidden and student.embedding == student.hidden
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
    """Return the principal directions of the words that lead from the teacher's widths to the student's.

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
        hidden, share = principal_directions(words, student.hidden, through=through)
        explained.append(share)
    if student.embedding < shape.embedding:
        # Without a map between them both widths share one space: the narrower basis is the start of the wider one.
        embedding, share = principal_directions(words, student.embedding)
        explained.append(share)
    return Bases(hidden, embedding, min(explained, default=None))


def find_active_bases(
    teacher: PreTrainedModel, student: Shape, shape: Shape, layers: Sequence[int], seed: int
) -> Bases:
    """Return the directions that hidden states of some layers lie along most on random tokens, and these layers.

    Factorised embeddings keep the principal directions of the words.

    Args:
        teacher: The teacher's base model, of a family whose maps have roles.
        student: The student's shape, nowhere wider than the teacher's.
        shape: The teacher's shape.
        layers: That the student's start from, counted from 1.
        seed: Of the tokens.
    """
    measured = measure(teacher, layers, seed)
    plain = student.embedding == student.hidden and shape.embedding == shape.hidden
    bases = Bases() if plain else find_bases(teacher, student, shape)
    if student.hidden == shape.hidden:
        return bases._replace(measured=measured)
    chosen = [measured[layer] for layer in dict.fromkeys(layers)]
    hidden, share = leading_directions(chosen, measured[1], student.hidden)
    return Bases(hidden, hidden if plain else bases.embedding, share, measured)


def transfer_embeddings(transfer: Transfer, student: PreTrainedModel, teacher: PreTrainedModel, bases: Bases) -> None:
    """Copy or project the embeddings, and the map from a factorised width to the hidden width.

    Args:
        transfer: Writes and remembers.
        student: The student's base model.
        teacher: The teacher's base model.
        bases: See `find_bases`.
    """
    for path in family_of(student.config).embeddings:
        given, how = teacher.get_submodule(path).state_dict(), transfer.copied
        if bases.embedding is not None:
            # No mean is taken off: the map stays linear, so a zero padding row stays zero.
            tables = {name: tensor for name, tensor in given.items() if tensor.dim() == 2}
            given = {name: table.double() @ bases.embedding for name, table in tables.items()}
            how = transfer.projected
            if bases.measured is not None and bases.hidden is bases.embedding:
                given |= _narrow_norms(teacher.get_submodule(path), bases.measured[1].inputs, bases.embedding)
        transfer.write(path, student.get_submodule(path), given, how)
    target, source = _projection(student), _projection(teacher)
    if target is None:
        return
    if source is not None:
        weight, bias = source.weight.double(), source.bias.double()
        weight = weight if bases.embedding is None else weight @ bases.embedding
    else:
        weight, bias = _unfold(teacher, bases)
    if bases.hidden is not None:
        weight, bias = bases.hidden.T @ weight, bases.hidden.T @ bias
    how = transfer.copied if bases.hidden is None and bases.embedding is None else transfer.projected
    path = str(family_of(student.config).embedding_projection)
    transfer.write(path, target, {"weight": weight, "bias": bias}, how)


def _narrow_norms(embeddings: nn.Module, outputs: Tensor, basis: Tensor) -> dict[str, Tensor]:
    """Return scale and shift of the norm that the embeddings end with, by their names in it."""
    norms = {name: module for name, module in embeddings.named_modules() if isinstance(module, nn.LayerNorm)}
    return {
        f"{name}.{own}": value
        for name, norm in norms.items()
        for own, value in narrow_norm(norm, outputs, basis).items()
    }


def embedding_paths(model: PreTrainedModel) -> list[str]:
    """Return the paths of the embeddings, and of the map after factorised ones."""
    family = family_of(model.config)
    return [*family.embeddings, *([] if _projection(model) is None else [str(family.embedding_projection)])]


def _projection(model: PreTrainedModel) -> nn.Linear | None:
    """Return the map from factorised embeddings to the hidden width; ELECTRA has none at equal widths."""
    path = family_of(model.config).embedding_projection
    if path is None or (shape := path.rpartition("."))[2] not in dict(model.get_submodule(shape[0]).named_children()):
        return None
    found = model.get_submodule(path)
    assert isinstance(found, nn.Linear)
    return found


def _unfold(teacher: PreTrainedModel, bases: Bases) -> tuple[Tensor, Tensor]:
    """Return the map from factorised embeddings back to the input of a plain teacher's blocks.

    The transpose of the basis, with the teacher's embedding LayerNorm folded in. The student's own norm precedes the
    map: its vectors have length √E where the teacher's have √H, and it cannot represent the teacher's scale and shift.
    """
    assert bases.embedding is not None
    norm = teacher.get_submodule("embeddings.LayerNorm")
    assert isinstance(norm, nn.LayerNorm)
    wide, narrow = bases.embedding.shape
    weight = norm.weight.double()[:, None] * bases.embedding * math.sqrt(wide / narrow)
    return weight, norm.bias.double()
