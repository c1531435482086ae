"""`LossTerm`, the sum and count that every objective returns, and checks of the arguments of objectives.

A *unit* is what a loss counts, such as a token or a sample, and leading axes of the tensors are over units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from limbeck.errors import KernelError
from limbeck.kernels.precision import compute_dtype


@dataclass(frozen=True)
class LossTerm:
    """A summed loss and the number of items it sums over.

    Only the trainer divides, so that a batch split over micro-batches or ranks gives the gradient of the
    whole.

    Args:
        total: Sum over the counted items, a float32 (or float64) scalar that carries the gradient.
        count: Number of items, a scalar of the same kind without gradient; 0 when nothing is valid.
    """

    total: Tensor
    count: Tensor

    @property
    def mean(self) -> Tensor:
        """`total / count`, and 0 when nothing was counted."""
        return self.total / self.count.clamp(min=1)

    def __add__(self, other: LossTerm) -> LossTerm:
        return LossTerm(self.total + other.total, self.count + other.count)


Projection: TypeAlias = Tensor | nn.Module | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Inputs:
    """Facts of the checked tensors of an objective, with the steps that all objectives have in common.

    Args:
        first: The first tensor.
        units: Number of leading axes over which valid units are counted, such as 2 for the tokens of `[B, L, width]`.
        mask: Valid units, bool, in the shape of these axes; None means all.
        dtype: Dtype of the computation.
    """

    first: Tensor
    units: int
    mask: Tensor | None
    dtype: torch.dtype

    def masked(self, x: Tensor) -> Tensor:
        """Return `x` in the dtype of the computation, with 0 for units that are not valid."""
        return zero_masked(x, self.mask, self.dtype)

    def count(self, per_unit: int = 1) -> Tensor:
        """Return `per_unit` × the number of valid units as a scalar, without reading it back."""
        if self.mask is None:
            number = self.first.shape[: self.units].numel() * per_unit
            return self.first.new_full((), number, dtype=self.dtype)  # Filled there: nothing is sent to a GPU.
        return self.mask.sum().to(self.dtype) * per_unit

    def term(self, total: Tensor, per_unit: int = 1) -> LossTerm:
        """Return a sum over the valid units, each of which counts `per_unit`."""
        return LossTerm(total, self.count(per_unit))


def check_inputs(
    axes: str, tensors: dict[str, Tensor], units: int, *, valid: Tensor | None = None, alike: int | None = None
) -> Inputs:
    """Check the tensors of an objective, with their mask.

    Args:
        axes: Axes of each tensor, such as `"[B, L, width]"`.
        tensors: By name, at least one.
        units: Number of leading axes over which valid units are counted; all tensors agree in them.
        valid: Mask over these axes, see `as_mask`.
        alike: Number of leading axes in which all tensors agree; None for `units`.

    Raises:
        KernelError: naming the first tensor that does not fit.
    """
    if alike is None:
        alike = units
    # "[B, L, width]" has three axes.
    rank = axes.count(",") + 1
    check_tensors(tensors, rank, axes, alike)
    first = next(iter(tensors.values()))
    mask = as_mask(valid, first, units)
    return Inputs(first, units, mask, compute_dtype(*tensors.values()))


def check_tensors(tensors: dict[str, Tensor], rank: int, axes: str, alike: int) -> None:
    """Check that named tensors are floating point, of one rank, on one device, and agree in their first axes.

    Args:
        tensors: By name, at least one.
        rank: Number of axes of each.
        axes: The axes, for messages.
        alike: Leading axes in which all agree.

    Raises:
        KernelError: naming the first tensor that does not fit.
    """
    for name, x in tensors.items():
        if not x.is_floating_point():
            raise KernelError(f"{name} is {_dtype_name(x)}; it has to be floating point: convert it first.")
        if x.dim() != rank:
            raise KernelError(f"{name} has shape {list(x.shape)}; it has to be {axes}.")
    check_alike(tensors, alike)


def check_alike(tensors: dict[str, Tensor], axes: int) -> None:
    """Check that the named tensors agree in their first `axes` axes and in their device.

    Raises:
        KernelError: naming the first pair that does not.
    """
    (first_name, first), *rest = tensors.items()
    for name, x in rest:
        if x.shape[:axes] != first.shape[:axes]:
            raise KernelError(
                f"{name} has shape {list(x.shape)} and {first_name} {list(first.shape)}, but their first {axes} "
                "axes have to be equal: give both models the same batch."
            )
        if x.device != first.device:
            raise KernelError(
                f"{name} is on {x.device} and {first_name} on {first.device}; move both to the same device."
            )


def check_heads(heads: int, widths: dict[str, int]) -> None:
    """Check that `heads` is a positive whole number that divides every named width.

    Raises:
        KernelError: naming the width that it does not divide.
    """
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1:
        raise KernelError(f"heads is {heads!r}; it has to be a whole number, 1 or more.")
    for name, width in widths.items():
        if width % heads:
            raise KernelError(
                f"heads {heads} does not divide the {name} width {width}; choose a divisor of both widths."
            )


def check_temperature(temperature: float) -> None:
    """Check that a temperature is above 0.

    Raises:
        KernelError: if it is not.
    """
    if not temperature > 0:
        raise KernelError(f"temperature is {temperature}; it has to be above 0.")


def check_labels(labels: Tensor, shape: torch.Size) -> None:
    """Check that labels are whole numbers in `shape`.

    Raises:
        KernelError: if they are not.
    """
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise KernelError(
            f"labels is {_dtype_name(labels)}; it has to hold whole numbers, the number of a class for each row."
        )
    if labels.shape != shape:
        raise KernelError(f"labels has shape {list(labels.shape)}; it has to be {list(shape)}.")


def same_group(groups: Tensor, like: Tensor) -> Tensor:
    """Return which rows are of one group, bool `[B, B]`.

    Args:
        groups: Number of each row's group, whole numbers `[B]`.
        like: Tensor whose first axis is B.

    Raises:
        KernelError: if the shape, the dtype or the device does not fit.
    """
    if groups.is_floating_point() or groups.dtype == torch.bool or groups.shape != like.shape[:1]:
        raise KernelError(
            f"groups is {_dtype_name(groups)} {list(groups.shape)}; it has to hold whole numbers, the number of "
            f"its group for each of the {len(like)} rows."
        )
    if groups.device != like.device:
        raise KernelError(
            f"groups is on {groups.device} and the values on {like.device}; move groups to {like.device}."
        )
    return groups[:, None] == groups


def count_groups(same: Tensor) -> Tensor:
    """Count the groups of two rows or more, without reading the number back.

    Args:
        same: As `same_group` returns it.
    """
    # Each group is counted by its first row, which is the one that no earlier row is in a group with.
    is_first = ~same.tril(-1).any(1)
    is_of_several = same.sum(1) > 1
    return (is_first & is_of_several).sum()


def as_mask(valid: Tensor | None, like: Tensor, axes: int = 2) -> Tensor | None:
    """Return `valid` as bool, or None for "all".

    A tokenizer's `attention_mask` holds whole numbers, so those are taken: anything but 0 is valid.
    Floating-point masks are refused, since additive masks (0 keeps, −inf hides) mean the opposite of
    multiplicative ones.

    Args:
        valid: Mask over the first `axes` axes of `like`, bool or whole numbers, or None.
        like: A tensor that the mask belongs to.
        axes: Leading axes of `like` that the mask covers.

    Raises:
        KernelError: if the shape, the dtype or the device does not fit.
    """
    if valid is None:
        return None
    if valid.is_floating_point() or valid.is_complex():
        raise KernelError(f"valid is {_dtype_name(valid)}; it has to be bool (True for real tokens): pass mask.bool().")
    if valid.shape != like.shape[:axes]:
        raise KernelError(f"valid has shape {list(valid.shape)}; it has to be {list(like.shape[:axes])}.")
    if valid.device != like.device:
        raise KernelError(f"valid is on {valid.device} and the vectors on {like.device}; move valid to {like.device}.")
    return valid.bool()


def zero_masked(x: Tensor, valid: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return `x` in `dtype`, with 0 wherever `valid` is False, even in place of NaN; its gradient is 0 there."""
    x = x.to(dtype)
    if valid is None:
        return x
    # The mask covers the first axes; the others are added with size 1.
    further_axes = (1,) * (x.dim() - valid.dim())
    mask = valid.reshape(*valid.shape, *further_axes)
    return x.masked_fill(~mask, 0.0)


def project(student: Tensor, projection: Projection | None, width: int) -> Tensor:
    """Map the student's vectors to `width`.

    Args:
        student: `[..., width_S]` in the compute dtype.
        projection: None; a matrix `[width_S, width]`, applied as `student @ projection`; or anything that is
            called with the vectors, such as `nn.Linear(width_S, width)`. A module gets them in the dtype of
            its parameters.
        width: The teacher's width.

    Returns:
        `[..., width]` in the dtype of `student`.

    Raises:
        KernelError: if the widths do not fit, with or without projection.
    """
    student_width = student.shape[-1]
    if projection is None:
        if student_width != width:
            raise KernelError(
                f"the student's width {student_width} differs from the teacher's {width}; give a projection."
            )
        return student
    if isinstance(projection, Tensor):
        if projection.shape != (student_width, width):
            raise KernelError(
                f"projection has shape {list(projection.shape)}; it has to be [{student_width}, {width}]."
            )
        return student @ projection.to(student.dtype)
    vectors = student
    if isinstance(projection, nn.Module):
        floating_dtypes = [weight.dtype for weight in projection.parameters() if weight.is_floating_point()]
        if floating_dtypes:
            vectors = student.to(floating_dtypes[0])
    mapped = projection(vectors)
    if mapped.shape != (*student.shape[:-1], width):
        raise KernelError(f"projection gives shape {list(mapped.shape)}; its last axis has to be {width}.")
    return mapped.to(student.dtype)


def _dtype_name(x: Tensor) -> str:
    """The name of a tensor's dtype as PyTorch's users write it, such as `float32`."""
    return str(x.dtype).removeprefix("torch.")
