"""How the Triton kernels of `relation_kl` are started: how the work is cut, and what both kernels take."""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

# Tokens on each side of a tile, and the same where heads are larger than `LEAST` and fill the registers; short
# texts take less.
TILE, TILE_OF_LARGE_HEADS = 64, 32
# Coordinates of a head that are multiplied at a time: 64 in 16 bits, half of it in float32.
CHUNK = 64
# A GPU's matrix units want 16 at least of everything.
LEAST = 16


def interpreting() -> bool:
    """Return whether Triton's interpreter is asked for, which needs no GPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@dataclass(frozen=True)
class Tiles:
    """How the work is cut; sized so that it fits into the registers and the shared memory of GPUs from Turing on.

    Args:
        tokens: On each side of a tile.
        student: Coordinates of a student's head at a time.
        teacher: The same of a teacher's head.
        warps: That work on a tile.
    """

    tokens: int
    student: int
    teacher: int
    warps: int


def plan_tiles(length: int, student_size: int, teacher_size: int, wide: bool) -> Tiles:
    """Return tiles, all powers of two, for texts of `length` tokens and these head sizes; `wide` in float32."""

    def fit(number: int, most: int) -> int:
        return max(LEAST, min(most, 1 << (number - 1).bit_length()))

    small = max(student_size, teacher_size) <= LEAST
    chunk = CHUNK // 2 if wide else CHUNK
    tokens = fit(length, TILE if small else TILE_OF_LARGE_HEADS)
    return Tiles(tokens, fit(student_size, chunk), fit(teacher_size, chunk), 8 if wide and tokens == 64 else 4)


def allocate(like: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for a kernel to write, all of it."""
    return like.new_empty(shape, dtype=dtype)


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Make the device of `x` the one that kernels start on."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


class Launch:
    """What both kernels take: the vectors, the mask, how they lie in memory and how the work is cut.

    Args:
        student: Left and right vectors `[B, L, width_S]`; None for right is left.
        teacher: The same of the teacher, `[B, L, width_T]`.
        valid: Real tokens, bool `[B, L]`; None means all.
        heads: Relation heads.
    """

    def __init__(
        self,
        student: tuple[Tensor, Tensor | None],
        teacher: tuple[Tensor, Tensor | None],
        valid: Tensor | None,
        heads: int,
    ) -> None:
        given = [x for left, right in (student, teacher) for x in (left, left if right is None else right)]
        # Neighbouring coordinates have to lie next to each other; other strides may be any.
        self.vectors = [x if x.stride(-1) == 1 else x.contiguous() for x in given]
        self.strides = [stride for x in self.vectors for stride in x.stride()[:2]]
        self.sizes = student[0].shape[-1] // heads, teacher[0].shape[-1] // heads
        # From a product of vectors to a base-2 logit.
        self.scales = [1 / (math.log(2) * math.sqrt(size)) for size in self.sizes]
        batch, length, _ = student[0].shape
        self.tiles = plan_tiles(length, *self.sizes, wide=any(x.dtype == torch.float32 for x in given))
        self.programs = math.ceil(length / self.tiles.tokens) * batch * heads
        if valid is None:
            self.mask = [student[0], student[0]]  # which are not read
        else:
            position = torch.arange(1, length + 1, device=valid.device, dtype=torch.int32)
            # The mask in bytes, and where each sample's last valid token ends.
            self.mask = [valid.contiguous().view(torch.uint8), (position * valid).amax(1)]
        self.constants = {
            "MASKED": valid is not None,
            "STUDENT_SIZE": self.sizes[0],
            "TEACHER_SIZE": self.sizes[1],
            "STUDENT_CHUNK": self.tiles.student,
            "TEACHER_CHUNK": self.tiles.teacher,
            # The interpreter multiplies bfloat16 as if it were whole numbers.
            "WIDEN": interpreting(),
            "num_warps": self.tiles.warps,
            "enable_fp_fusion": True,
        }


def gradient_precision(vectors: Tensor) -> str:
    """Return how the float32 probabilities are multiplied with `vectors`.

    Three TF32 products have the result right to about 2⁻²¹, far below what rounding to 16 bits costs, and run on the
    matrix units of NVIDIA's GPUs from Ampere on. Float32 results get float32 products.
    """
    if vectors.dtype == torch.float32 or not vectors.is_cuda or torch.version.hip is not None:
        return "ieee"
    return "tf32x3" if torch.cuda.get_device_capability(vectors.device)[0] >= 8 else "ieee"
