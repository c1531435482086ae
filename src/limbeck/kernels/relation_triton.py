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

# Most tokens on each side of a tile; short texts take fewer.
TILE = 64
# The same for heads of more than `LEAST` coordinates, which would fill the registers.
TILE_OF_LARGE_HEADS = 32
# Most coordinates of a head that are multiplied at a time: 64 in 16 bits, half of that in float32.
CHUNK = 64
# A GPU's matrix units multiply matrices whose sides are 16 at least.
LEAST = 16


def interpreting() -> bool:
    """Return whether Triton's interpreter is asked for, which needs no GPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@dataclass(frozen=True)
class Tiles:
    """How the work is cut; sized so that it fits into the registers and the shared memory of GPUs from Turing on.

    Args:
        tokens: Tokens on each side of a tile.
        student: Coordinates of a student's head that are multiplied at a time.
        teacher: Coordinates of a teacher's head that are multiplied at a time.
        warps: Warps (groups of 32 threads) that work on a tile.
    """

    tokens: int
    student: int
    teacher: int
    warps: int


def plan_tiles(length: int, student_size: int, teacher_size: int, wide: bool) -> Tiles:
    """Return the sizes of the tiles, all powers of two.

    Args:
        length: Tokens of a text.
        student_size: Coordinates of a student's head.
        teacher_size: Coordinates of a teacher's head.
        wide: Some vectors are in float32, and take twice the room of 16 bits.
    """
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
    """Return uninitialised memory, of which a kernel writes every number."""
    return like.new_empty(shape, dtype=dtype)


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Return a context in which kernels start on the device of `x`; it does nothing for a CPU."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


class Launch:
    """The arguments that the forward and the gradient kernel share, and the division of their work into programs.

    A relation compares *left* vectors, the rows of an L×L matrix, with *right* vectors, its columns.

    Args:
        student: Left and right vectors of the student, `[B, L, width_S]`; with None the right ones are the left ones.
        teacher: The same of the teacher, `[B, L, width_T]`.
        valid: Real tokens, bool `[B, L]`; None means all.
        heads: Relation heads.

    Attributes:
        vectors: Student's left and right vectors, then the teacher's left and right vectors.
        student_size: Coordinates of one head of the student.
        teacher_size: Coordinates of one head of the teacher.
        tiles: The sizes of the tiles.
        row_tiles: Number of tiles of rows, over all samples and heads.
        mask: The mask as bytes, `[B, L]`, or a placeholder without one.
        sizes_and_factors: Numbers that both kernels read at run time, by the names of their arguments.
        constants: Compile-time constants and launch options of both kernels.
    """

    def __init__(
        self,
        student: tuple[Tensor, Tensor | None],
        teacher: tuple[Tensor, Tensor | None],
        valid: Tensor | None,
        heads: int,
    ) -> None:
        student_left, student_right = student
        teacher_left, teacher_right = teacher
        if student_right is None:
            student_right = student_left
        if teacher_right is None:
            teacher_right = teacher_left
        self.vectors: list[Tensor] = []
        for vectors in (student_left, student_right, teacher_left, teacher_right):
            # The kernels take neighbouring coordinates to be neighbours in memory; the other two strides may be any.
            if vectors.stride(-1) != 1:
                vectors = vectors.contiguous()
            self.vectors.append(vectors)

        batch, length, student_width = student_left.shape
        teacher_width = teacher_left.shape[-1]
        self.student_size = student_width // heads
        self.teacher_size = teacher_width // heads
        self.sizes_and_factors = {
            "length": length,
            "heads": heads,
            # The kernels need the number 1 at run time, where the compiler cannot see its value.
            "one": 1.0,
            # A logit is product / √size. Divided by ln 2 it is the exponent of 2 in place of e.
            "student_scale": 1 / (math.log(2) * math.sqrt(self.student_size)),
            "teacher_scale": 1 / (math.log(2) * math.sqrt(self.teacher_size)),
        }
        wide = any(vectors.dtype == torch.float32 for vectors in self.vectors)
        self.tiles = plan_tiles(length, self.student_size, self.teacher_size, wide=wide)
        self.row_tiles = math.ceil(length / self.tiles.tokens) * batch * heads

        if valid is None:
            # A kernel's argument has to be some tensor. With MASKED = False no kernel reads this one.
            self.mask = student_left
            span = 1
        else:
            self.mask = valid.contiguous().view(torch.uint8)
            # The kernels read a sample's whole mask at once, and Triton's ranges have the length of a power of two:
            # the smallest one that is at least the number of tokens.
            span = 1 << (length - 1).bit_length()
        self.constants = {
            "MASKED": valid is not None,
            "SPAN": span,
            "STUDENT_SIZE": self.student_size,
            "TEACHER_SIZE": self.teacher_size,
            "STUDENT_CHUNK": self.tiles.student,
            "TEACHER_CHUNK": self.tiles.teacher,
            # The interpreter would multiply the bits of bfloat16 numbers as integers, so it multiplies in float32.
            "WIDEN": interpreting(),
            "num_warps": self.tiles.warps,
            # No loads ahead of their use: they would be copied four bytes at a time, and the many programs of a
            # multiprocessor already hide the wait for memory.
            "num_stages": 1,
            # The compiler must not join products and sums, which would round differently: the kernels call `fma`.
            "enable_fp_fusion": False,
        }

    def arguments(self, left: str, right: str) -> dict[str, Any]:
        """Return the arguments that both kernels have, by name: vectors, mask, sizes, factors and constants.

        The vectors come with their strides from sample to sample and from token to token.

        Args:
            left: The kernel's name for left vectors: "a" makes `student_a`, `student_a_batch` and `student_a_token`.
            right: Its name for right vectors.
        """
        names = (f"student_{left}", f"student_{right}", f"teacher_{left}", f"teacher_{right}")
        arguments: dict[str, Any] = {"valid": self.mask, **self.sizes_and_factors, **self.constants}
        for name, vectors in zip(names, self.vectors, strict=True):
            sample_stride, token_stride, _ = vectors.stride()
            arguments[name] = vectors
            arguments[f"{name}_batch"] = sample_stride
            arguments[f"{name}_token"] = token_stride
        return arguments


def gradient_precision(vectors: Tensor) -> str:
    """Return how the float32 probabilities are multiplied with `vectors`.

    Returns:
        The precision by its name in the gradient kernel:

        - `"halves"`, for bfloat16: two products, of the leading 16 bits of the probabilities and of their rest. The
          result is right to about 2⁻¹⁶.
        - `"tf32x3"`, for float16 on NVIDIA's GPUs from Ampere (compute capability 8) on: three products in TF32. The
          result is right to about 2⁻²¹.
        - `"ieee"`, for everything else: float32 products.

        The first two run on the matrix units, and their error is far below that of rounding the result to 16 bits.
    """
    if vectors.dtype == torch.bfloat16:
        return "halves"
    if vectors.dtype == torch.float32 or not vectors.is_cuda or torch.version.hip is not None:
        return "ieee"
    capability, _ = torch.cuda.get_device_capability(vectors.device)
    return "tf32x3" if capability >= 8 else "ieee"


# Finding the package does not import it, which would take seconds.
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
    student_a, student_b = _in_one_dtype(student_a, student_b)
    teacher_a, teacher_b = _in_one_dtype(teacher_a.detach(), teacher_b.detach())
    vectors: list[Tensor | None] = [student_a, student_b, teacher_a, teacher_b]
    if symmetric:
        # None says that the right vectors are the left ones.
        vectors = [student_a, None, teacher_a, None]
    # A graph or a transform needs the registered operation. Otherwise a plain autograd function starts much faster.
    if _is_followed_beyond_autograd(vectors):
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


def _is_followed_beyond_autograd(vectors: Sequence[Tensor | None]) -> bool:
    """Return whether more than autograd follows the computation.

    That is `torch.compile`, a dispatch mode, a transform such as `torch.func.vmap`, or a subclass of tensor.
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    if torch._C._are_functorch_transforms_active():
        return True
    is_batch = torch._C._functorch.is_legacy_batchedtensor
    return any(x is not None and (type(x) not in (Tensor, torch.nn.Parameter) or is_batch(x)) for x in vectors)


def _in_one_dtype(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
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
    """Compute the loss, and the numbers of each row from which the backward pass makes its probabilities again.

    Args:
        student_a: Left vectors of the student, `[B, L, width_S]`.
        student_b: Right vectors of the student; None if they are the left ones.
        teacher_a: Left vectors of the teacher, `[B, L, width_T]`.
        teacher_b: Right vectors of the teacher; None if they are the left ones.
        valid: Real tokens, bool `[B, L]`; None means all.
        heads: Relation heads.
        causal: Row t sees the columns up to t only.

    Returns:
        The loss in nats, a scalar, and the terms of the log-sum-exps of the student's and of the teacher's rows,
        float32 `[B, heads, 3, L]` each: a row's greatest product, the base-2 logarithm of its sum, and the column of
        the greatest product.
    """
    from limbeck.kernels.relation_triton_kernels import relation_forward_kernel

    batch, length, _ = student_a.shape
    divergence = allocate(student_a, (batch, heads, length), torch.float32)
    student_terms = allocate(student_a, (batch, heads, 3, length), torch.float32)
    teacher_terms = allocate(student_a, (batch, heads, 3, length), torch.float32)
    # Triton cannot start a kernel of no programs.
    if divergence.numel():
        launch = Launch((student_a, student_b), (teacher_a, teacher_b), valid, heads)
        tile_side = launch.tiles.tokens
        # One program for each tile of rows of each head of each sample; it goes over the columns by itself.
        grid = (launch.row_tiles,)
        with on_device_of(student_a):
            relation_forward_kernel[grid](
                # What both kernels read: vectors, mask, sizes, factors and constants.
                **launch.arguments("a", "b"),
                # Written.
                divergence=divergence,
                student_terms=student_terms,
                teacher_terms=teacher_terms,
                # A tile is a square.
                ROWS=tile_side,
                COLUMNS=tile_side,
                CAUSAL=causal,
            )
    loss = divergence.sum(dtype=torch.float64).float()
    return loss, student_terms, teacher_terms


_forward_op = library.custom_op(
    "limbeck::relation_kl_forward",
    _forward,
    mutates_args=(),
    schema="(Tensor student_a, Tensor? student_b, Tensor teacher_a, Tensor? teacher_b, Tensor? valid, int heads, "
    "bool causal) -> (Tensor, Tensor, Tensor)",
)


@_forward_op.register_fake
def _(student_a: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The shapes and dtypes of the results of `_forward`, for `torch.compile`, which runs no kernel."""
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
    """Compute the gradient of one side of the student's vectors, the *own* ones; the other side are the *others*.

    Args:
        upstream: Gradient of the loss, a scalar.
        student_own: The vectors to differentiate, `[B, L, width_S]`.
        student_other: The vectors that they are compared with; None if these are the same ones.
        teacher_own: The teacher's vectors of the same side as `student_own`, `[B, L, width_T]`.
        teacher_other: The teacher's vectors of the other side; None if these are the same ones.
        valid: Real tokens, bool `[B, L]`; None means all.
        student_terms: Terms of the student's log-sum-exps, from `_forward`.
        teacher_terms: Terms of the teacher's log-sum-exps, likewise.
        as_rows: `student_own` are the rows of the relation.
        as_columns: `student_own` are the columns of the relation. Where both sides are the same vectors, both flags are
            set, and the two parts of the gradient are added up.
        causal: Row t sees the columns up to t only.
    """
    from limbeck.kernels.relation_triton_kernels import relation_gradient_kernel

    heads = student_terms.shape[1]
    # To make bfloat16, a GPU rounds, but the interpreter cuts the low bits off. There the conversion waits for the end.
    dtype = torch.float32 if interpreting() else student_own.dtype
    gradient = allocate(student_own, tuple(student_own.shape), dtype)
    # Triton cannot start a kernel of no programs.
    if gradient.numel():
        launch = Launch((student_own, student_other), (teacher_own, teacher_other), valid, heads)
        tile_side = launch.tiles.tokens
        # One program for each chunk of a head's coordinates in each tile of own tokens; it goes over the others by
        # itself.
        chunks_of_head = math.ceil(launch.student_size / launch.tiles.student)
        grid = (launch.row_tiles * chunks_of_head,)
        with on_device_of(student_own):
            relation_gradient_kernel[grid](
                # What both kernels read: vectors, mask, sizes, factors and constants.
                **launch.arguments("own", "other"),
                # Read by this one alone: what `_forward` kept of each row, and the gradient of the loss.
                student_terms=student_terms,
                teacher_terms=teacher_terms,
                upstream=upstream,
                # A logit is product / √size, so its gradient times this factor goes into the gradient of a vector.
                factor=1 / math.sqrt(launch.student_size),
                # Written.
                gradient=gradient,
                # A tile is a square.
                OWN=tile_side,
                OTHERS=tile_side,
                AS_ROWS=as_rows,
                AS_COLUMNS=as_columns,
                CAUSAL=causal,
                PRECISION=gradient_precision(student_own),
            )
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
    """The shape and dtype of the result of `_gradient`, for `torch.compile`, which runs no kernel."""
    return student_own.new_empty(student_own.shape)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Save the vectors, the mask and the terms of the log-sum-exps, from which the backward pass makes the tiles."""
    *vectors, valid, _heads, causal = inputs
    _loss, student_terms, teacher_terms = output
    ctx.save_for_backward(*vectors, valid, student_terms, teacher_terms)
    ctx.causal = causal


def _backward(ctx: Any, upstream: Tensor, make: Callable[..., Tensor]) -> tuple[Tensor | None, ...]:
    """Compute the gradients of all inputs of `_forward`.

    Args:
        ctx: Holds what `_save_for_backward` saved.
        upstream: Gradient of the loss.
        make: Computes the gradient of one side: `_gradient`, or the operation that is registered for it.
    """
    refuse_second_derivative("relation_kl with backend 'triton'", "choose backend 'reference'")
    student_a, student_b, teacher_a, teacher_b, valid, *terms = ctx.saved_tensors
    wants_a, wants_b = ctx.needs_input_grad[:2]
    grad_a = None
    grad_b = None
    if student_b is None:
        # Both sides are the same vectors: rows and columns at once.
        vectors = (student_a, None, teacher_a, None)
        as_rows = True
        as_columns = True
        grad_a = make(upstream, *vectors, valid, *terms, as_rows, as_columns, ctx.causal)
    else:
        # `make` differentiates the first vectors that it gets, so the right side gets the two sides swapped.
        if wants_a:
            vectors = (student_a, student_b, teacher_a, teacher_b)
            as_rows = True
            as_columns = False
            grad_a = make(upstream, *vectors, valid, *terms, as_rows, as_columns, ctx.causal)
        if wants_b:
            swapped_vectors = (student_b, student_a, teacher_b, teacher_a)
            as_rows = False
            as_columns = True
            grad_b = make(upstream, *swapped_vectors, valid, *terms, as_rows, as_columns, ctx.causal)
    # The teacher's vectors (two), the mask, the number of heads and the causal flag have no gradient.
    return grad_a, grad_b, None, None, None, None, None


def _backward_in_graph(ctx: Any, upstream: Tensor, *_unused: Tensor) -> tuple[Tensor | None, ...]:
    """Compute the gradients by the registered operation, which a graph can hold."""
    return _backward(ctx, upstream, torch.ops.limbeck.relation_kl_gradient)


_forward_op.register_autograd(_backward_in_graph, setup_context=_save_for_backward)


class _RelationKL(torch.autograd.Function):
    """The same where nothing but autograd watches: a registered operation takes several times as long to start."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        output = _forward(*inputs)
        _save_for_backward(ctx, inputs, output)
        return output[0]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        make = torch.ops.limbeck.relation_kl_gradient if _is_followed_beyond_autograd([upstream]) else _gradient
        return _backward(ctx, upstream, make)
