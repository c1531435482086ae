"""Copying a block into a narrower one, head by head.

Written with T for the teacher's width and S for the student's. A basis P is `[T, S]` with orthonormal
columns: the student's hidden state stands for Pᵀ times the teacher's. A map that reads the hidden state is
multiplied by P, one that writes to it by Pᵀ. None stands for the identity.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from limbeck.errors import ModelError
from limbeck.models.families import Shape
from limbeck.models.family_table import families
from limbeck.models.transfer import Transfer


def narrow_block(
    transfer: Transfer,
    prefix: str,
    target: nn.Module,
    source: nn.Module,
    shapes: tuple[Shape, Shape],
    basis: Tensor | None,
) -> None:
    """Copy a block into a narrower one, by the role of each linear map.

    Whole heads are kept, the strongest first in line where the student has fewer; inside a kept head its
    leading dimensions where the student's heads are narrower. No slice crosses a head boundary. Of the
    feed-forward neurons the strongest are kept. Strength is the product of the norms of what goes in and
    what comes out.

    Args:
        transfer: Writes and remembers.
        prefix: The block's name.
        target: The student's block.
        source: The teacher's block.
        shapes: Of the student and of the teacher; see `check_narrowing`.
        basis: `[T, S]`, or None where the hidden widths are equal.
    """
    student, teacher = shapes
    roles = families[student.model_type].roles
    assert roles is not None
    maps = {
        name: _linear(source, name)
        for name in (
            *(roles.query, roles.key, roles.value, roles.attention_output),
            *(roles.ffn_in, roles.ffn_out),
        )
    }
    strength = _strength(maps[roles.value][0], maps[roles.attention_output][0])
    heads = strongest(strength.view(teacher.heads, teacher.head_size).sum(1), student.heads)
    rows = head_rows(heads, teacher.head_size, student.head_size)
    neurons = strongest(_strength(maps[roles.ffn_in][0], maps[roles.ffn_out][0]), student.ffn)
    for name, kept in (
        (roles.query, rows),
        (roles.key, rows),
        (roles.value, rows),
        (roles.ffn_in, neurons),
    ):
        weight, bias = maps[name]
        weight = weight[kept] if basis is None else weight[kept] @ basis
        transfer.linear(f"{prefix}.{name}", target.get_submodule(name), weight, bias[kept])
    for name, kept in ((roles.attention_output, rows), (roles.ffn_out, neurons)):
        weight, bias = maps[name]
        if basis is not None:
            weight, bias = basis.T @ weight, basis.T @ bias
        transfer.linear(f"{prefix}.{name}", target.get_submodule(name), weight[:, kept], bias)
    for name in roles.norms:
        norm = target.get_submodule(name)
        if basis is None:
            transfer.copy(f"{prefix}.{name}", norm, source.get_submodule(name))
        else:
            transfer.reset_norm(f"{prefix}.{name}", norm)


def _linear(block: nn.Module, name: str) -> tuple[Tensor, Tensor]:
    """Return a linear map's weight `[out, in]` and bias `[out]` in float64."""
    found = block.get_submodule(name)
    assert isinstance(found, nn.Linear)
    assert found.bias is not None  # every family with roles has biases
    return found.weight.double(), found.bias.double()


def head_rows(heads: Tensor, teacher_size: int, student_size: int) -> Tensor:
    """Return the rows of a heads-concatenated projection that the student keeps, head by head.

    Args:
        heads: `[heads]`, the teacher's heads that are kept, counted from 0.
        teacher_size: Width of a teacher head.
        student_size: Width of a student head, at most the teacher's.

    Returns:
        Row numbers, `[heads * student_size]`.
    """
    within = torch.arange(student_size, device=heads.device)
    return (heads[:, None] * teacher_size + within).flatten()


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
    family = families[student.model_type]
    if family.roles is None:
        raise ModelError(
            f"Blocks of {family.model_type} can only be copied at equal shape, because "
            f"{family.roles_missing}; the student is {student}, the teacher {teacher}: give the student the "
            f"teacher's numbers, {way_out}."
        )
    for what, ours, theirs, key in (
        ("hidden width", student.hidden, teacher.hidden, "hidden"),
        ("heads", student.heads, teacher.heads, "heads"),
        ("FFN width", student.ffn, teacher.ffn, "ffn"),
    ):
        if ours > theirs:
            raise ModelError(
                f"The student's {what} {ours} exceeds the teacher's {theirs}, so its layers cannot be "
                f"copied; set {key} to at most {theirs}, {way_out}."
            )
    if student.head_size > teacher.head_size:
        raise ModelError(
            f"The student's heads are {student.head_size} wide and the teacher's {teacher.head_size}, so a "
            f"copy would cut across heads; set heads to {teacher.heads}, {way_out}."
        )
    if teacher.embedding < student.hidden < teacher.hidden:
        raise ModelError(
            f"The teacher's word embeddings span only {teacher.embedding} directions, too few to tell which "
            f"{student.hidden} of its {teacher.hidden} to keep; set hidden to {teacher.hidden}, {way_out}."
        )
