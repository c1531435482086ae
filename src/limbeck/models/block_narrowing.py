"""A block copied into a narrower one, by the role of each of its linear maps and norms.

T and S are the hidden widths of the source and the student, and P `[T, S]` is the basis between them, see `bases.py`. A
block has A heads of size d and F feed-forward *neurons*. The rows of its heads and its neurons are its *inner units*:
maps that read the hidden state end in them, and maps that write to it begin there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from limbeck.models.activations import BlockActivations
from limbeck.models.families import Shape
from limbeck.models.family_table import BlockRoles, row_of
from limbeck.models.head_narrowing import HeadMaps, Heads
from limbeck.models.transfer import Origin, Transfer


class _Linear(NamedTuple):
    """Weight `[out, in]` and bias `[out]` of a linear map, in float64."""

    weight: Tensor
    bias: Tensor


_Maps: TypeAlias = dict[str, _Linear]
"""A block's linear maps by name."""


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """How blocks of a source become narrower blocks.

    Attributes:
        student: The student's shape.
        source: The source's shape, nowhere narrower.
        basis: P, or None where the hidden widths are equal.
    """

    student: Shape
    source: Shape
    basis: Tensor | None


def narrow_block(
    transfer: Transfer,
    prefix: str,
    target: nn.Module,
    source: nn.Module,
    narrowing: Narrowing,
    measured: BlockActivations | None = None,
) -> None:
    """Copy a block into a narrower one, by the role of each linear map.

    Where the student has fewer heads or neurons, the strongest are kept. A head is kept whole, or narrowed by itself
    where the student's heads are narrower: no slice crosses a head boundary.

    - By weights, the strength of a unit is the product of the norms of the weights into it and out of it. A narrower
      head keeps its leading dimensions.
    - By activations, the strength of a head is the mean square of what it writes, and that of a neuron the variance of
      what it writes; the mean that left-out neurons write goes into the bias. A narrower head is the best approximation
      of its rank, see `head_narrowing.py`.

    Args:
        transfer: Writes the tensors into the student, and keeps their names.
        prefix: The block's name.
        target: The student's block.
        source: The source's block.
        narrowing: The shapes and the basis.
        measured: The activations of the source's block; None narrows by weights.
    """
    roles = row_of(narrowing.student.model_type).roles
    assert roles is not None
    names = (*_maps_that_read(roles), *_maps_that_write(roles))
    maps = {name: _read_linear(source, name) for name in names}
    maps_at_width = _at_student_width(maps, roles, narrowing.basis)
    if measured is None:
        narrowed = _narrow_by_weights(roles, maps, maps_at_width, narrowing)
    else:
        narrowed = _narrow_by_activations(roles, maps_at_width, narrowing, measured)
    for name, linear in narrowed.items():
        values = {"weight": linear.weight, "bias": linear.bias}
        transfer.write(f"{prefix}.{name}", target.get_submodule(name), values, origin="projected")

    for name in roles.norms:
        norm = source.get_submodule(name)
        origin: Origin
        if narrowing.basis is None:
            values = norm.state_dict()
            origin = "copied"
        elif measured is None:
            # Weights tell no scale and shift for mixed features; `write` resets a norm without values.
            values = {}
            origin = "reset"
        else:
            values = narrow_norm(norm, measured.norms[name], narrowing.basis)
            origin = "projected"
        transfer.write(f"{prefix}.{name}", target.get_submodule(name), values, origin)


def narrow_norm(norm: nn.Module, outputs: Tensor, basis: Tensor) -> dict[str, Tensor]:
    """Return the scale (`weight`) and shift (`bias`), `[S]` each, of a norm in a narrower student.

    The student's states are to be y = Pᵀ (x − b) + Pᵀ b, with x the source's output and b its shift. So the student's
    shift is Pᵀ b. One scale for all features gives Pᵀ (x − b) its root mean square length, since a norm gives each
    feature a mean square of 1 before it scales.

    Args:
        norm: The source's norm.
        outputs: The moment of its output, `[T + 1, T + 1]`; see `activations.py`.
        basis: P, `[T, S]`.
    """
    shift = norm.get_parameter("bias").double()
    width = basis.shape[1]
    # [T, T + 1]: the identity beside -b. Its product with an output that has a one behind it is x − b.
    identity = torch.eye(len(shift)).to(shift)
    without_shift = torch.cat([identity, -shift[:, None]], 1)
    # [S, S]: the mean of z zᵀ, with z = Pᵀ (x − b). Its trace is the mean of ‖z‖².
    squares = basis.T @ without_shift @ outputs @ without_shift.T @ basis
    scale = squares.trace().div(width).sqrt()
    return {"weight": scale.expand(width), "bias": basis.T @ shift}


def _maps_that_read(roles: BlockRoles) -> tuple[str, ...]:
    """The names of the maps that read the hidden state."""
    return roles.query, roles.key, roles.value, roles.ffn_in


def _maps_that_write(roles: BlockRoles) -> tuple[str, ...]:
    """The names of the maps that write to the hidden state."""
    return roles.attention_output, roles.ffn_out


def _read_linear(block: nn.Module, name: str) -> _Linear:
    """Return the weight and the bias of a block's linear map."""
    linear = block.get_submodule(name)
    assert isinstance(linear, nn.Linear)
    # Every family with roles has biases.
    assert linear.bias is not None
    return _Linear(linear.weight.double(), linear.bias.double())


def _at_student_width(maps: _Maps, roles: BlockRoles, basis: Tensor | None) -> _Maps:
    """Project the side of each map that reads or writes hidden states to the student's width; inner units all stay.

    Args:
        maps: The source's maps.
        roles: The names of the maps.
        basis: P; None where the hidden widths are equal.
    """
    if basis is None:
        return dict(maps)
    maps_at_width = {}
    for name in _maps_that_read(roles):
        # [inner, T] -> [inner, S].
        weight, bias = maps[name]
        maps_at_width[name] = _Linear(weight @ basis, bias)
    for name in _maps_that_write(roles):
        # [T, inner] -> [S, inner].
        weight, bias = maps[name]
        maps_at_width[name] = _Linear(basis.T @ weight, basis.T @ bias)
    return maps_at_width


def _narrow_by_weights(roles: BlockRoles, maps: _Maps, maps_at_width: _Maps, narrowing: Narrowing) -> _Maps:
    """Cut the maps to the strongest heads and neurons, whose strength is told by their weights.

    Args:
        roles: The paths of the maps.
        maps: The source's maps, which decide the strengths.
        maps_at_width: The same maps at the student's width, which are cut.
        narrowing: The shapes.
    """
    student = narrowing.student
    source = narrowing.source
    # A head's strength is the sum over its rows, which lie one after another: [A · d] -> [A].
    row_strength = _strength(maps[roles.value].weight, maps[roles.attention_output].weight)
    head_strength = row_strength.view(source.heads, source.head_size).sum(1)
    heads = strongest(head_strength, student.heads)
    # A weight is [outputs, inputs], so that the rows of a map that reads are its units. Of each head that is kept, the
    # first dimensions stay, as many as the student's heads have.
    dimensions = torch.arange(student.head_size, device=heads.device)
    head_rows = (heads[:, None] * source.head_size + dimensions).flatten()

    neuron_strength = _strength(maps[roles.ffn_in].weight, maps[roles.ffn_out].weight)
    neurons = strongest(neuron_strength, student.ffn)

    narrowed = {}
    for name in _maps_that_read(roles):
        weight, bias = maps_at_width[name]
        units = neurons if name == roles.ffn_in else head_rows
        narrowed[name] = _Linear(weight[units], bias[units])
    for name in _maps_that_write(roles):
        weight, bias = maps_at_width[name]
        units = neurons if name == roles.ffn_out else head_rows
        narrowed[name] = _Linear(weight[:, units], bias)
    return narrowed


def _strength(into: Tensor, out: Tensor) -> Tensor:
    """Return the squared strength of each inner unit: `[inner, in]` and `[out, inner]` -> `[inner]`."""
    return into.square().sum(1) * out.square().sum(0)


def strongest(strength: Tensor, count: int) -> Tensor:
    """Return the indices of the `count` strongest units, in rising order; `[units]` -> `[count]`."""
    order = torch.sort(strength, descending=True, stable=True).indices[:count]
    return order.sort().values


def _narrow_by_activations(
    roles: BlockRoles, maps_at_width: _Maps, narrowing: Narrowing, measured: BlockActivations
) -> _Maps:
    """Cut the maps to the strongest heads and neurons, whose strength is told by their activations.

    Args:
        roles: The paths of the maps.
        maps_at_width: The source's maps at the student's width.
        narrowing: The shapes and the basis.
        measured: The activations of the source's block.
    """
    narrowed = _narrow_heads(roles, maps_at_width, narrowing, measured)
    into, into_bias = maps_at_width[roles.ffn_in]
    out, out_bias = maps_at_width[roles.ffn_out]
    neuron_strength = measured.neurons.variance * out.square().sum(0)
    neurons = strongest(neuron_strength, narrowing.student.ffn)
    # The mean that the left-out neurons write goes into the bias; those that are kept have 0 here.
    means_left_out = measured.neurons.mean.index_fill(0, neurons, 0.0)
    narrowed[roles.ffn_in] = _Linear(into[neurons], into_bias[neurons])
    narrowed[roles.ffn_out] = _Linear(out[:, neurons], out_bias + out @ means_left_out)
    return narrowed


def _narrow_heads(roles: BlockRoles, maps_at_width: _Maps, narrowing: Narrowing, measured: BlockActivations) -> _Maps:
    """Return the attention maps of the heads that write most; arguments as of `_narrow_by_activations`."""
    head_count = narrowing.source.heads
    head_size = narrowing.source.head_size
    # Each projection as [A, d, S + 1], its bias as the last column.
    per_head = {}
    for name in (roles.query, roles.key, roles.value):
        weight, bias = maps_at_width[name]
        joined = torch.cat([weight, bias[:, None]], 1)
        per_head[name] = joined.view(head_count, head_size, -1)
    # The output map as [A, S, d].
    output_weight, output_bias = maps_at_width[roles.attention_output]
    output = output_weight.view(len(output_weight), head_count, head_size).transpose(0, 1)
    # The moment at the student's width, [S + 1, S + 1]. The one behind a hidden state is not projected.
    inputs = measured.inputs
    if narrowing.basis is not None:
        basis_with_one = torch.block_diag(narrowing.basis, narrowing.basis.new_ones(1, 1))
        inputs = basis_with_one.T @ inputs @ basis_with_one

    maps = HeadMaps(query=per_head[roles.query], key=per_head[roles.key], value=per_head[roles.value], output=output)
    heads = Heads(maps, inputs)
    kept_heads = strongest(heads.strength(), narrowing.student.heads)
    narrow_maps = heads.narrow(kept_heads, narrowing.student.head_size)
    return {
        roles.query: _split_bias(narrow_maps.query),
        roles.key: _split_bias(narrow_maps.key),
        roles.value: _split_bias(narrow_maps.value),
        roles.attention_output: _Linear(narrow_maps.output.transpose(0, 1).flatten(1), output_bias),
    }


def _split_bias(projection: Tensor) -> _Linear:
    """Return a projection `[A, d, S + 1]`, its bias last, as a linear map to all heads."""
    weight = projection[..., :-1].flatten(0, 1)
    bias = projection[..., -1].flatten()
    return _Linear(weight, bias)
