"""A block copied into a narrower one, by the role of each of its linear maps and norms.

Written as in `bases.py`: T and S are the source's and the student's hidden widths, and P `[T, S]` is the basis between
them. A block has A heads of size d and F feed-forward *neurons*; heads and neurons are its inner units.
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
        narrowing: The shapes and the basis.
        measured: The source's block on random tokens; None goes by weights alone.
    """
    roles = row_of(narrowing.student.model_type).roles
    assert roles is not None
    maps = {name: _read_linear(source, name) for name in (*_reading(roles), *_writing(roles))}
    maps_at_width = _at_student_width(maps, roles, narrowing.basis)
    if measured is None:
        narrowed = _narrow_by_weights(roles, maps, maps_at_width, narrowing)
    else:
        narrowed = _narrow_by_activations(roles, maps_at_width, narrowing, measured)
    for name, linear in narrowed.items():
        values = {"weight": linear.weight, "bias": linear.bias}
        transfer.write(f"{prefix}.{name}", target.get_submodule(name), values, "projected")

    for name in roles.norms:
        norm = source.get_submodule(name)
        origin: Origin
        if narrowing.basis is None:
            values = norm.state_dict()
            origin = "copied"
        elif measured is None:
            # Without a value the norm is reset.
            values = {}
            origin = "reset"
        else:
            values = narrow_norm(norm, measured.norms[name], narrowing.basis)
            origin = "projected"
        transfer.write(f"{prefix}.{name}", target.get_submodule(name), values, origin)


def narrow_norm(norm: nn.Module, outputs: Tensor, basis: Tensor) -> dict[str, Tensor]:
    """Return a norm's scale and shift in a narrower student: the projected states' length, and the projected shift.

    Args:
        norm: The teacher's.
        outputs: The moment of its output, `[T + 1, T + 1]`; see `activations.py`.
        basis: P, `[T, S]`.
    """
    shift = norm.get_parameter("bias").double()
    width = basis.shape[1]
    # [T, T + 1]: times an output with a one behind it, this is the output without the shift.
    without_shift = torch.cat([torch.eye(len(shift)).to(shift), -shift[:, None]], 1)
    # [S, S]: the moment of the projected outputs without the shift.
    squares = basis.T @ without_shift @ outputs @ without_shift.T @ basis
    scale = squares.trace().div(width).sqrt()
    return {"weight": scale.expand(width), "bias": basis.T @ shift}


def _reading(roles: BlockRoles) -> tuple[str, ...]:
    """Names of the maps that read the hidden state."""
    return roles.query, roles.key, roles.value, roles.ffn_in


def _writing(roles: BlockRoles) -> tuple[str, ...]:
    """Names of the maps that write to the hidden state."""
    return roles.attention_output, roles.ffn_out


def _read_linear(block: nn.Module, name: str) -> _Linear:
    linear = block.get_submodule(name)
    assert isinstance(linear, nn.Linear)
    # Every family with roles has biases.
    assert linear.bias is not None
    return _Linear(linear.weight.double(), linear.bias.double())


def _at_student_width(maps: _Maps, roles: BlockRoles, basis: Tensor | None) -> _Maps:
    """Return the maps between the student's hidden state and the source's heads and neurons."""
    if basis is None:
        return dict(maps)
    maps_at_width = {}
    for name in _reading(roles):
        weight, bias = maps[name]
        maps_at_width[name] = _Linear(weight @ basis, bias)
    for name in _writing(roles):
        weight, bias = maps[name]
        maps_at_width[name] = _Linear(basis.T @ weight, basis.T @ bias)
    return maps_at_width


def _narrow_by_weights(roles: BlockRoles, maps: _Maps, maps_at_width: _Maps, narrowing: Narrowing) -> _Maps:
    """Return the strongest heads and neurons of the maps.

    Args:
        roles: Which map is which.
        maps: The source's, which decide the strengths.
        maps_at_width: The same at the student's width.
        narrowing: The shapes.
    """
    student = narrowing.student
    source = narrowing.source
    # The rows of the kept heads: of each its leading dimensions.
    row_strength = _strength(maps[roles.value].weight, maps[roles.attention_output].weight)
    head_strength = row_strength.view(source.heads, source.head_size).sum(1)
    heads = strongest(head_strength, student.heads)
    dimensions = torch.arange(student.head_size, device=heads.device)
    head_rows = (heads[:, None] * source.head_size + dimensions).flatten()

    neuron_strength = _strength(maps[roles.ffn_in].weight, maps[roles.ffn_out].weight)
    neurons = strongest(neuron_strength, student.ffn)

    narrowed = {}
    for name in _reading(roles):
        weight, bias = maps_at_width[name]
        units = neurons if name == roles.ffn_in else head_rows
        narrowed[name] = _Linear(weight[units], bias[units])
    for name in _writing(roles):
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
    """Return the heads and neurons that do most on inputs as they were measured.

    Args:
        roles: Which map is which.
        maps_at_width: The source's maps at the student's width.
        narrowing: The shapes and the basis.
        measured: The source's block on random tokens.
    """
    narrowed = _narrow_heads(roles, maps_at_width, narrowing, measured)
    into, into_bias = maps_at_width[roles.ffn_in]
    out, out_bias = maps_at_width[roles.ffn_out]
    neuron_strength = measured.neurons.variance * out.square().sum(0)
    neurons = strongest(neuron_strength, narrowing.student.ffn)
    # Neurons that are left out still write their mean.
    means_left_out = measured.neurons.mean.index_fill(0, neurons, 0.0)
    narrowed[roles.ffn_in] = _Linear(into[neurons], into_bias[neurons])
    narrowed[roles.ffn_out] = _Linear(out[:, neurons], out_bias + out @ means_left_out)
    return narrowed


def _narrow_heads(roles: BlockRoles, maps_at_width: _Maps, narrowing: Narrowing, measured: BlockActivations) -> _Maps:
    """Return the maps of attention, with the heads that write most; arguments as of `_narrow_by_activations`."""
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
    # The moment at the student's width, [S + 1, S + 1]; the one stays as it is.
    inputs = measured.inputs
    if narrowing.basis is not None:
        basis_with_one = torch.block_diag(narrowing.basis, narrowing.basis.new_ones(1, 1))
        inputs = basis_with_one.T @ inputs @ basis_with_one

    maps = HeadMaps(per_head[roles.query], per_head[roles.key], per_head[roles.value], output)
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
