"""`relation_kl` in Triton, for GPUs: the L×L matrices exist only as tiles on the chip, in the backward pass too.

The forward pass keeps the terms of two log-sum-exps per row and head; the backward pass makes the tiles again.
Nothing is read back to the host, and nothing is added up in an order that could change: every number is written once,
by one program. The operations are registered with `torch.library`, so `torch.compile` keeps them in its graph. Triton's
interpreter (`TRITON_INTERPRET=1`, set before anything imports Triton) runs the same kernels on a CPU, slowly: that
is how they are tested without a GPU.
"""

import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, library

from limbeck.errors import KernelError
from limbeck.kernels.precision import compute_dtype, refuse_second_derivative

# Tokens on each side of a tile; short texts take less.
TILE = 64
# The same where heads are larger than `LEAST` and fill the registers.
TILE_OF_LARGE_HEADS = 32
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

    has_small_heads = max(student_size, teacher_size) <= LEAST
    largest_tile = TILE if has_small_heads else TILE_OF_LARGE_HEADS
    largest_chunk = CHUNK // 2 if wide else CHUNK
    tokens = _power_of_two(length, most=largest_tile)
    # A large tile in float32 takes the registers of twice as many threads.
    warps = 8 if wide and tokens == TILE else 4
    return Tiles(
        tokens=tokens,
        student=_power_of_two(student_size, most=largest_chunk),
        teacher=_power_of_two(teacher_size, most=largest_chunk),
        warps=warps,
    )


def _power_of_two(number: int, *, most: int) -> int:
    """Return the next power of two from a number on, at least `LEAST` and at most `most`."""
    power = 1 << (number - 1).bit_length()
    return max(LEAST, min(most, power))


def allocate(like: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for a kernel to write, all of it."""
    return like.new_empty(shape, dtype=dtype)


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Start kernels on the device of `x`."""
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
        # Left and right of the student, then of the teacher.
        self.vectors: list[Tensor] = []
        for left, right in (student, teacher):
            for vectors in (left, left if right is None else right):
                # Neighbouring coordinates have to lie next to each other; other strides may be any.
                self.vectors.append(vectors if vectors.stride(-1) == 1 else vectors.contiguous())
        # Of samples and of tokens.
        self.strides = [stride for vectors in self.vectors for stride in vectors.stride()[:2]]
        # Coordinates of a head of the student and of the teacher.
        self.sizes = (student[0].shape[-1] // heads, teacher[0].shape[-1] // heads)
        # The kernels' 1, and the factors from a product of vectors to a base-2 logit.
        self.factors = [1.0, *(1 / (math.log(2) * math.sqrt(size)) for size in self.sizes)]
        batch, length, _ = student[0].shape
        wide = any(vectors.dtype == torch.float32 for vectors in self.vectors)
        self.tiles = plan_tiles(length, *self.sizes, wide=wide)
        self.programs = math.ceil(length / self.tiles.tokens) * batch * heads
        # The mask in bytes; without one it is not read.
        self.mask = student[0] if valid is None else valid.contiguous().view(torch.uint8)
        self.constants = {
            "MASKED": valid is not None,
            "SPAN": 1 if valid is None else 1 << (length - 1).bit_length(),
            "STUDENT_SIZE": self.sizes[0],
            "TEACHER_SIZE": self.sizes[1],
            "STUDENT_CHUNK": self.tiles.student,
            "TEACHER_CHUNK": self.tiles.teacher,
            # The interpreter multiplies bfloat16 as if it were whole numbers.
            "WIDEN": interpreting(),
            "num_warps": self.tiles.warps,
            # Loads that are copied ahead are of four bytes each; many programs on a multiprocessor hide them as well.
            "num_stages": 1,
            "enable_fp_fusion": False,  # Kernels say themselves where a product and a sum are joined.
        }


def gradient_precision(vectors: Tensor) -> str:
    """Return how the float32 probabilities are multiplied with `vectors`.

    Bfloat16 gets two products, of their leading 16 bits and of the rest, and float16 three in TF32 on NVIDIA's GPUs
    from Ampere on. They have the result right to about 2⁻¹⁶ and 2⁻²¹, far below what rounding it to 16 bits costs, and
    run on the matrix units. Float32 results get float32 products.
    """
    if vectors.dtype == torch.bfloat16:
        return "halves"
    if vectors.dtype == torch.float32 or not vectors.is_cuda or torch.version.hip is not None:
        return "ieee"
    return "tf32x3" if torch.cuda.get_device_capability(vectors.device)[0] >= 8 else "ieee"


# Looking for it does not import it.
INSTALLED = importlib.util.find_spec("triton") is not None
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def relation_kl_triton(
    student_a: Tensor,
    student_b: Tensor,
    teacher_a: Tensor,
    teacher_b: Tensor,
    heads: int,
    valid: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Same value and gradient as `relation_kl_reference`, in tiles on a GPU.

    Memory is O(B · L · width): six numbers for each row and head are kept for the backward pass. Where b is a for
    both models, logits are symmetric and one pass makes the whole gradient. Products, exponentials and sums are in
    float32 whatever the inputs are, and gradients are rounded to the inputs' format once.

    Args:
        student_a: Left vectors of the student, `[B, L, width_S]`; carries gradient.
        student_b: Right vectors of the student, `[B, L, width_S]`; carries gradient; may be `student_a` itself.
        teacher_a: Left vectors of the teacher, `[B, L, width_T]`; constant.
        teacher_b: Right vectors of the teacher, `[B, L, width_T]`; constant.
        heads: Relation heads; divides both widths.
        valid: Real tokens, bool `[B, L]`; None means all.
        causal: Row t sees the columns up to t only.

    Returns:
        A float32 scalar in nats; it has a first derivative only.

    Raises:
        KernelError: if Triton, a GPU or a dtype that it computes in is missing.
    """
    obstacle = triton_obstacle(student_a.device.type, compute_dtype(student_a, student_b, teacher_a, teacher_b))
    if obstacle is not None:
        raise KernelError(obstacle)
    symmetric = student_b is student_a and teacher_b is teacher_a
    student_a, student_b = _prepare(student_a, student_b)
    teacher_a, teacher_b = _prepare(teacher_a.detach(), teacher_b.detach())
    vectors: list[Tensor | None] = [student_a, student_b, teacher_a, teacher_b]
    if symmetric:
        vectors = [student_a, None, teacher_a, None]
    if _is_watched(vectors):
        total, _, _ = torch.ops.limbeck.relation_kl_forward(*vectors, valid, heads, causal)
        return total
    value: Tensor = _RelationKL.apply(*vectors, valid, heads, causal)
    return value


def triton_obstacle(device: str, dtype: torch.dtype) -> str | None:
    """Return why Triton cannot compute `relation_kl` in `dtype` on a type of device, with the way out; None if it can.

    Args:
        device: Such as `"cuda"`.
        dtype: The dtype that the loss is computed in.
    """
    way_out = "choose backend 'auto', 'blocked' or 'reference'."
    if not INSTALLED:
        return f"backend 'triton' needs the package triton, which is not installed; install it or {way_out}"
    if dtype == torch.float64:
        return f"backend 'triton' has no float64; give float32, bfloat16 or float16, or {way_out}"
    if device != "cuda" and not interpreting():
        return f"backend 'triton' needs a CUDA device, but the tensors are on {device}; {way_out}"
    return None


def _is_watched(vectors: Sequence[Tensor | None]) -> bool:
    """Whether more than autograd follows what is computed: a graph, a mode, a transform or a kind of tensor."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    if torch._C._are_functorch_transforms_active():
        return True
    is_batch = torch._C._functorch.is_legacy_batchedtensor
    return any(x is not None and (type(x) not in (Tensor, torch.nn.Parameter) or is_batch(x)) for x in vectors)


def _prepare(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return left and right vectors in one dtype that the kernels read."""
    if a.dtype == b.dtype and a.dtype in DTYPES:
        return a, b
    return a.float(), b.float()


def _forward(
    student_a: Tensor,
    student_b: Tensor | None,
    teacher_a: Tensor,
    teacher_b: Tensor | None,
    valid: Tensor | None,
    heads: int,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Total in nats, and the terms of each row's log-sum-exps, of the student and of the teacher; None: b is a."""
    from limbeck.kernels.relation_triton_kernels import relation_forward_kernel

    batch, length, _ = student_a.shape
    divergence = allocate(student_a, (batch, heads, length), torch.float32)
    terms = [allocate(student_a, (batch, heads, 3, length), torch.float32) for _ in range(2)]
    if divergence.numel():
        launch = Launch((student_a, student_b), (teacher_a, teacher_b), valid, heads)
        tokens = launch.tiles.tokens
        with on_device_of(student_a):
            relation_forward_kernel[(launch.programs,)](
                *launch.vectors, launch.mask, divergence, *terms, length, heads, *launch.factors, *launch.strides,
                CAUSAL=causal, ROWS=tokens, COLUMNS=tokens, **launch.constants,
            )  # fmt: skip
    return divergence.sum(dtype=torch.float64).float(), terms[0], terms[1]


_forward_op = library.custom_op(
    "limbeck::relation_kl_forward",
    _forward,
    mutates_args=(),
    schema="(Tensor student_a, Tensor? student_b, Tensor teacher_a, Tensor? teacher_b, Tensor? valid, int heads, "
    "bool causal) -> (Tensor, Tensor, Tensor)",
)


@_forward_op.register_fake
def _(student_a: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    batch, length, _ = student_a.shape
    *_, heads, _ = rest
    shape = (batch, heads, 3, length)
    student_terms, teacher_terms = (student_a.new_empty(shape, dtype=torch.float32) for _ in range(2))
    return student_a.new_empty((), dtype=torch.float32), student_terms, teacher_terms


def _gradient(
    upstream: Tensor,
    student_own: Tensor,
    student_other: Tensor | None,
    teacher_own: Tensor,
    teacher_other: Tensor | None,
    valid: Tensor | None,
    student_terms: Tensor,
    teacher_terms: Tensor,
    as_rows: bool,
    as_columns: bool,
    causal: bool,
) -> Tensor:
    """Gradient of `student_own`, which has met `student_other` as rows, as columns or, being both, as either."""
    from limbeck.kernels.relation_triton_kernels import relation_gradient_kernel

    batch, length, width = student_own.shape
    heads = student_terms.shape[1]
    # The interpreter cuts numbers off for bfloat16, where a GPU rounds them.
    dtype = torch.float32 if interpreting() else student_own.dtype
    gradient = allocate(student_own, (batch, length, width), dtype)
    if gradient.numel():
        launch = Launch((student_own, student_other), (teacher_own, teacher_other), valid, heads)
        tokens = launch.tiles.tokens
        size = launch.sizes[0]
        programs = launch.programs * math.ceil(size / launch.tiles.student)
        with on_device_of(student_own):
            relation_gradient_kernel[(programs,)](
                *launch.vectors, launch.mask, student_terms, teacher_terms, upstream, gradient,
                length, heads, *launch.factors, 1 / math.sqrt(size), *launch.strides,
                AS_ROWS=as_rows, AS_COLUMNS=as_columns, CAUSAL=causal, PRECISION=gradient_precision(student_own),
                OWN=tokens, OTHERS=tokens, **launch.constants,
            )  # fmt: skip
    return gradient.to(student_own.dtype)


_gradient_op = library.custom_op(
    "limbeck::relation_kl_gradient",
    _gradient,
    mutates_args=(),
    schema="(Tensor upstream, Tensor student_own, Tensor? student_other, Tensor teacher_own, Tensor? teacher_other, "
    "Tensor? valid, Tensor student_terms, Tensor teacher_terms, bool as_rows, bool as_columns, bool causal) -> Tensor",
)


@_gradient_op.register_fake
def _(upstream: Tensor, student_own: Tensor, *_rest: Any) -> Tensor:
    return student_own.new_empty(student_own.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Save what the backward pass makes the tiles from."""
    *vectors, valid, _, causal = inputs
    ctx.save_for_backward(*vectors, valid, *output[1:])
    ctx.causal = causal


def _backward(ctx: Any, upstream: Tensor, make: Callable[..., Tensor]) -> tuple[Tensor | None, ...]:
    """The gradients of all inputs, where `make` computes one."""
    refuse_second_derivative("relation_kl with backend 'triton'", "choose backend 'reference'")
    student_a, student_b, teacher_a, teacher_b, valid, *log_sums = ctx.saved_tensors
    wants_a, wants_b = ctx.needs_input_grad[:2]
    grad_a = None
    grad_b = None
    if student_b is None:
        grad_a = make(upstream, student_a, None, teacher_a, None, valid, *log_sums, True, True, ctx.causal)
    else:
        # The flags are `as_rows` and `as_columns`; what `make` differentiates comes first of each model.
        if wants_a:
            vectors = (student_a, student_b, teacher_a, teacher_b)
            grad_a = make(upstream, *vectors, valid, *log_sums, True, False, ctx.causal)
        if wants_b:
            swapped_vectors = (student_b, student_a, teacher_b, teacher_a)
            grad_b = make(upstream, *swapped_vectors, valid, *log_sums, False, True, ctx.causal)
    # The teacher's vectors, the mask, the heads and the flag have none.
    return grad_a, grad_b, None, None, None, None, None


def _backward_in_graph(ctx: Any, upstream: Tensor, *_unused: Tensor) -> tuple[Tensor | None, ...]:
    return _backward(ctx, upstream, torch.ops.limbeck.relation_kl_gradient)


_forward_op.register_autograd(_backward_in_graph, setup_context=_keep)


class _RelationKL(torch.autograd.Function):
    """The same where nothing but autograd watches: a registered operation takes several times as long to start."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        output = _forward(*inputs)
        _keep(ctx, inputs, output)
        return output[0]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        make = torch.ops.limbeck.relation_kl_gradient if _is_watched([upstream]) else _gradient
        return _backward(ctx, upstream, make)
