"""The start of a student's layers: copies of the source's, whole or narrowed by the role of each linear map."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn

from limbeck.errors import ModelError
from limbeck.models.activations import BlockActivations, Heads, narrow_norm
from limbeck.models.families import Shape, base_model, block_list, blocks, family_of, same_blocks, shape_of
from limbeck.models.family_table import BlockRoles, row_of
from limbeck.models.layer_selection import selected_layers
from limbeck.models.start_step import Start, StartSettings, StartStep
from limbeck.models.transfer import Transfer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Maps: TypeAlias = dict[str, tuple[Tensor, Tensor]]
"""Weights `[out, in]` and biases `[out]` of a block's linear maps by name, in float64."""


class Layers(StartStep):
    """The blocks, and the modules beside them that go with them."""

    name = "layers"
    place = "layers"

    def check(self, student: Shape, source: Shape, settings: StartSettings) -> None:
        """Refuse layers that cannot be narrowed."""
        layers = selected_layers(settings.layers, student.layers, source.layers)
        if layers and not same_blocks(student, source):
            check_narrowing(student, source)

    def apply(self, start: Start) -> None:
        """Copy, narrow or draw the layers."""
        student = base_model(start.student)
        source = base_model(start.source)
        if start.layers:
            _transfer_blocks(start, student, source)
            start.transfer.take(_around_blocks(student), student, source, start.transfer.copied)
        else:
            paths = [family_of(student.config).blocks, *_around_blocks(student)]
            start.transfer.take(paths, student, start.fresh, start.transfer.random)


def _transfer_blocks(start: Start, student: PreTrainedModel, source: PreTrainedModel) -> None:
    path = family_of(student.config).blocks
    source_blocks = blocks(source)
    shapes = (shape_of(student.config), shape_of(source.config))
    bases = start.bases
    # A shared block serves several layers; it starts from the source of the first.
    first_layer = {block: index for index, block in reversed(list(enumerate(blocks(student))))}
    for position, block in enumerate(block_list(student)):
        layer = start.layers[first_layer[block]]
        name = f"{path}.{position}"
        source_block = source_blocks[layer - 1]
        if same_blocks(*shapes):
            start.transfer.write(name, block, source_block.state_dict(), start.transfer.copied)
        else:
            measured = None if bases.measured is None else bases.measured[layer]
            narrow_block(start.transfer, name, block, source_block, shapes, bases.hidden, measured)


def _around_blocks(model: PreTrainedModel) -> list[str]:
    """Return the modules beside the blocks that go with them: the final norm, shared relative positions."""
    family = family_of(model.config)
    final_norm = [family.final_norm] if family.final_norm else []
    return [*final_norm, *family.extras]


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
        source: The source's block.
        shapes: Of the student and of the source; see `check_narrowing`.
        basis: `[T, S]`, or None where the hidden widths are equal.
        measured: The source's block on random tokens; None goes by weights alone.
    """
    roles = row_of(shapes[0].model_type).roles
    assert roles is not None
    maps = {name: _linear(source, name) for name in (*_reading(roles), *_writing(roles))}
    reduced = _at_student_width(maps, roles, basis)
    if measured is None:
        narrowed = _narrow_by_weights(roles, maps, reduced, shapes)
    else:
        narrowed = _narrow_by_activations(roles, reduced, shapes, basis, measured)
    for name, (weight, bias) in narrowed.items():
        values = {"weight": weight, "bias": bias}
        transfer.write(f"{prefix}.{name}", target.get_submodule(name), values, transfer.projected)

    for name in roles.norms:
        norm = source.get_submodule(name)
        origin = transfer.copied
        if basis is None:
            values = norm.state_dict()
        elif measured is None:
            values = {}  # The norm is reset.
        else:
            values = narrow_norm(norm, measured.norms[name], basis)
            origin = transfer.projected
        transfer.write(f"{prefix}.{name}", target.get_submodule(name), values, origin)


def _reading(roles: BlockRoles) -> tuple[str, ...]:
    """Maps that read the hidden state."""
    return roles.query, roles.key, roles.value, roles.ffn_in


def _writing(roles: BlockRoles) -> tuple[str, ...]:
    """Maps that write to the hidden state."""
    return roles.attention_output, roles.ffn_out


def _linear(block: nn.Module, name: str) -> tuple[Tensor, Tensor]:
    """Return a linear map's weight `[out, in]` and bias `[out]` in float64."""
    linear = block.get_submodule(name)
    assert isinstance(linear, nn.Linear)
    assert linear.bias is not None  # Every family with roles has biases.
    return linear.weight.double(), linear.bias.double()


def _at_student_width(maps: Maps, roles: BlockRoles, basis: Tensor | None) -> Maps:
    """Return the maps between the student's hidden state and the source's heads and neurons."""
    if basis is None:
        return dict(maps)
    reduced = {}
    for name in _reading(roles):
        weight, bias = maps[name]
        reduced[name] = (weight @ basis, bias)
    for name in _writing(roles):
        weight, bias = maps[name]
        reduced[name] = (basis.T @ weight, basis.T @ bias)
    return reduced


def _narrow_by_weights(roles: BlockRoles, maps: Maps, reduced: Maps, shapes: tuple[Shape, Shape]) -> Maps:
    """Return the strongest heads and neurons of the maps.

    Args:
        roles: Which map is which.
        maps: The source's, which decide the strengths.
        reduced: The same at the student's width.
        shapes: Of the student and of the source.
    """
    student, source = shapes
    # Kept heads, and in each its leading dimensions.
    strength = _strength(maps[roles.value][0], maps[roles.attention_output][0])
    heads = strongest(strength.view(source.heads, source.head_size).sum(1), student.heads)
    dimensions = torch.arange(student.head_size, device=heads.device)
    rows = (heads[:, None] * source.head_size + dimensions).flatten()
    neurons = strongest(_strength(maps[roles.ffn_in][0], maps[roles.ffn_out][0]), student.ffn)

    narrowed = {}
    for name in _reading(roles):
        weight, bias = reduced[name]
        units = neurons if name == roles.ffn_in else rows
        narrowed[name] = (weight[units], bias[units])
    for name in _writing(roles):
        weight, bias = reduced[name]
        units = neurons if name == roles.ffn_out else rows
        narrowed[name] = (weight[:, units], bias)
    return narrowed


def _narrow_by_activations(
    roles: BlockRoles, reduced: Maps, shapes: tuple[Shape, Shape], basis: Tensor | None, measured: BlockActivations
) -> Maps:
    """Return what the maps do most on inputs as they were measured, at the student's width.

    Args:
        roles: Which map is which.
        reduced: The source's maps at the student's width.
        shapes: Of the student and of the source.
        basis: `[T, S]`, or None where the hidden widths are equal.
        measured: The source's block on random tokens.
    """
    narrowed = _narrow_heads(roles, reduced, shapes, basis, measured)
    into, into_bias = reduced[roles.ffn_in]
    out, out_bias = reduced[roles.ffn_out]
    neurons = strongest(measured.neurons.variance * out.square().sum(0), shapes[0].ffn)
    left_out = measured.neurons.mean.index_fill(0, neurons, 0.0)
    narrowed[roles.ffn_in] = (into[neurons], into_bias[neurons])
    narrowed[roles.ffn_out] = (out[:, neurons], out_bias + out @ left_out)
    return narrowed


def _narrow_heads(
    roles: BlockRoles, reduced: Maps, shapes: tuple[Shape, Shape], basis: Tensor | None, measured: BlockActivations
) -> Maps:
    """Return the maps of attention, with the heads that write most; see `_narrow_by_activations`."""
    student, source = shapes
    # Each projection as `[A, d, S + 1]`, its bias as the last column.
    projections = (roles.query, roles.key, roles.value)
    per_head = []
    for name in projections:
        weight, bias = reduced[name]
        joined = torch.cat([weight, bias[:, None]], 1)
        per_head.append(joined.view(source.heads, source.head_size, -1))
    writing, writing_bias = reduced[roles.attention_output]
    output = writing.view(len(writing), source.heads, source.head_size).transpose(0, 1)
    inputs = measured.inputs
    if basis is not None:
        with_one = torch.block_diag(basis, basis.new_ones(1, 1))
        inputs = with_one.T @ inputs @ with_one

    query, key, value = per_head
    heads = Heads(query, key, value, output, inputs)
    *narrow_projections, output = heads.narrow(strongest(heads.strength(), student.heads), student.head_size)
    narrowed = {}
    for name, projection in zip(projections, narrow_projections, strict=True):
        narrowed[name] = (projection[..., :-1].flatten(0, 1), projection[..., -1].flatten())
    narrowed[roles.attention_output] = (output.transpose(0, 1).flatten(1), writing_bias)
    return narrowed


def _strength(going_in: Tensor, coming_out: Tensor) -> Tensor:
    """Return the squared strength of each inner unit: `[inner, in]` and `[out, inner]` -> `[inner]`."""
    return going_in.square().sum(1) * coming_out.square().sum(0)


def strongest(strength: Tensor, count: int) -> Tensor:
    """Return the indices of the `count` strongest units, in rising order; `[units]` -> `[count]`."""
    order = torch.sort(strength, descending=True, stable=True).indices[:count]
    return order.sort().values


def check_narrowing(student: Shape, source: Shape) -> None:
    """Refuse to copy blocks between shapes that cannot be matched head by head.

    Raises:
        ModelError: naming the numbers, the reason and what would work.
    """
    way_out = "or set layers: random"
    family = row_of(student.model_type)
    if family.roles is None:
        raise ModelError(
            f"Blocks of {student.model_type} can only be copied between equal shapes, because "
            f"{family.roles_missing}; the student is {student}, the teacher {source}: give the student the "
            f"teacher's numbers, {way_out}."
        )
    for title, key in (("hidden width", "hidden"), ("heads", "heads"), ("FFN width", "ffn")):
        student_number = getattr(student, key)
        source_number = getattr(source, key)
        if student_number > source_number:
            raise ModelError(
                f"The student's {title} {student_number} exceeds the teacher's {source_number}, so its layers cannot "
                f"be copied; set {key} to at most {source_number}, {way_out}."
            )
    if student.head_size > source.head_size:
        width = max(source.heads, student.hidden - student.hidden % source.heads)
        wider = "" if width == student.hidden else f"hidden to {width} and "
        raise ModelError(
            f"The student's heads are {student.head_size} wide and the teacher's {source.head_size}, so a "
            f"copy would cut across heads; set {wider}heads to {source.heads}, {way_out}."
        )
    if source.embedding < student.hidden < source.hidden:
        raise ModelError(
            f"The teacher's word embeddings span only {source.embedding} directions, too few to tell which "
            f"{student.hidden} of its {source.hidden} to keep; set hidden to {source.hidden}, {way_out}."
        )
