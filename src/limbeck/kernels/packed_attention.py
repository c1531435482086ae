"""Attention over packed samples on a CPU: no padding, dropout included, and no L×L matrix kept for the backward pass.

PyTorch's fast CPU attention has no dropout: with it, scores, probabilities and masks of all heads are made in full,
twice; and its backward pass in bfloat16 takes several times as long as in float32. Here every thread works on a few
heads of one sample, or on short samples of like length, in memory that stays in cache, and the backward pass computes
the probabilities anew.

    S = Q Kᵀ · scale,  P = softmax(S),  M = keep factors / (1 − p),  O = (P ∘ M) V
    dV = (P ∘ M)ᵀ dO,  D = rowsum(dO ∘ O),  dS = P ∘ ((dO Vᵀ) ∘ M − D),  dQ = dS K · scale,  dK = dSᵀ Q · scale

Source: the backward pass is that of FlashAttention (arXiv 2205.14135, appendix B.4).

Without it and its form in C a whole step takes 1.3 to 1.5 times as long (benchmarks/results/kernel_steps.json).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.errors import KernelError
from limbeck.kernels.cpu.attention import CompiledPlan, compiled_plan
from limbeck.kernels.dropout import KeepFactors, draw_seed, dropped_share
from limbeck.kernels.precision import autocast_off, compute_dtype, refuse_second_derivative
from limbeck.kernels.sample_groups import alike_samples
from limbeck.kernels.workers import Scratch, run_tasks

# Scores that a thread has in work; it holds three blocks of them.
BLOCK = 1 << 19
# Samples of at most this length are computed in groups of like length: alone, starting an operation costs more than it.
GROUPED_TO = 32
# Such a group may compute at most this many times the scores that its samples need.
GROUP_ALLOWANCE = 1.5
# Up to this length products of float32 are faster than PyTorch's fast attention in bfloat16, without a backward pass.
SHORT = 24
HALVES = (torch.bfloat16, torch.float16)
# A few megabytes a thread, whose mapping would be a fifth of a backward pass over short samples.
_SCRATCH = Scratch()


def packed_attention(
    query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], *, scale: float, dropout: float = 0.0
) -> Tensor:
    """Attend within each sample of a packed row: softmax(Q Kᵀ · scale) V per head, dropout on the probabilities.

    In bfloat16, PyTorch's backward pass of fast attention on a CPU takes several times as long as in float32: there
    scores are computed in float32 here, by a compiled kernel where a C compiler is found (`cpu/attention.py`),
    else short samples in groups of like length.

    Args:
        query: `[A, T, D]`, T tokens of all samples one after the other; on a CPU.
        key: Like `query`.
        value: Like `query`, of any D.
        lengths: Tokens of each sample, 1 or more; they add up to T.
        scale: Factor of the scores.
        dropout: Probability that a probability is set to 0; what is left is scaled, see `fast_dropout`.

    Returns:
        `[T, A, D]`, in the dtype of `value`. In float32 and float64 without dropout it is what
        `scaled_dot_product_attention` gives sample by sample; else scores are computed in float32 (float64 for
        float64), and it has a first derivative only.

    Raises:
        KernelError: if a length is below 1, or they do not add up to T.
    """
    tokens = query.shape[1]
    if min(lengths, default=0) < 1 or sum(lengths) != tokens:
        raise KernelError(
            f"Lengths {list(lengths)[:8]} do not divide {tokens} tokens; give lengths of 1 or more that add up to that."
        )
    share = dropped_share(dropout)
    if share == 1:
        return value.transpose(0, 1) * 0
    is_half = value.dtype in HALVES
    if share == 0 and not is_half:
        return _attend_by_sample(query, key, value, lengths, scale)

    plan: CompiledPlan | _Plan | None = compiled_plan(query, key, value, lengths, scale=scale, dropout=dropout)
    if plan is None:
        heads = len(value)
        grouped_to = GROUPED_TO if is_half else 0
        blocks = _blocks(tuple(lengths), heads, grouped_to, BLOCK)
        seed = draw_seed() if share > 0 else 0
        plan = _Plan(blocks, scale, dropout, seed)
    context: Tensor = _PackedAttention.apply(query, key, value, plan)
    return context


def _attend_by_sample(query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float) -> Tensor:
    """Attend by PyTorch's fast attention, one sample after the other; `[T, A, D]`."""
    contexts = []
    for tokens in _slices(lengths):
        # PyTorch's fast attention takes four axes only: [1, A, tokens, D].
        sample = (query[None, :, tokens], key[None, :, tokens], value[None, :, tokens])
        context = F.scaled_dot_product_attention(*sample, scale=scale)
        contexts.append(context[0].transpose(0, 1))
    return torch.cat(contexts)


def _slices(lengths: Sequence[int]) -> list[slice]:
    """Return the tokens of each sample."""
    ends = accumulate(lengths)
    return [slice(end - length, end) for length, end in zip(lengths, ends, strict=True)]


@dataclass(frozen=True)
class _Block:
    """Some heads of one sample, or of samples of like length, and the stream that their keep factors come from.

    Args:
        tokens: Of one sample; of several the place of each of their slots, `[samples · length]`.
        samples: How many.
        length: Slots of each.
        heads: Which heads.
        number: Of the stream.
        empty: Slots that hold no token, bool `[samples, length]`; None where all hold one.
        held: Numbers of the others, and their tokens.
    """

    tokens: slice | Tensor
    samples: int
    length: int
    heads: slice
    number: int
    empty: Tensor | None = None
    held: tuple[Tensor, Tensor] | None = None

    def rows(self) -> Iterator[slice]:
        """Query tokens that are done at once, within the sample."""
        scores_of_a_row = self.samples * self.length * (self.heads.stop - self.heads.start)
        step = max(1, BLOCK // scores_of_a_row)
        for top in range(0, self.length, step):
            yield slice(top, min(top + step, self.length))

    def take(self, operand: Tensor) -> Tensor:
        """Take the block's part of `[T, A, D]`: `[samples, heads, length, D]`."""
        if isinstance(self.tokens, slice):
            return operand[self.tokens, self.heads].transpose(0, 1)[None]
        rows = operand.flatten(1).index_select(0, self.tokens)
        return rows.view(self.samples, self.length, *operand.shape[1:]).transpose(1, 2)

    def put(self, units: Tensor, target: Tensor) -> None:
        """Write `[samples, heads, length, D]` to the block's part of `[T, A, D]`, but for slots that are empty."""
        if isinstance(self.tokens, slice):
            target[self.tokens, self.heads] = units[0].transpose(0, 1).to(target.dtype)
            return
        rows = units.transpose(1, 2).to(target.dtype).flatten(0, 1).flatten(1)
        places = self.tokens
        if self.held is not None:
            slots, places = self.held
            rows = rows.index_select(0, slots)
        target.flatten(1).index_copy_(0, places, rows)


@lru_cache(maxsize=8)
def _blocks(lengths: tuple[int, ...], heads: int, grouped_to: int, block: int) -> tuple[_Block, ...]:
    """Divide the samples: each alone by heads, those of at most `grouped_to` tokens in groups of like length."""
    blocks: list[_Block] = []
    tokens = _slices(lengths)
    # A long sample by itself, some of its heads at a time.
    for sample, length in enumerate(lengths):
        if length <= grouped_to:
            continue
        heads_at_once = max(1, min(heads, block // length**2))
        for first_head in range(0, heads, heads_at_once):
            head_part = slice(first_head, min(first_head + heads_at_once, heads))
            blocks.append(_Block(tokens[sample], 1, length, head_part, len(blocks)))

    # Short samples of like length together, with all heads.
    short = [sample for sample, length in enumerate(lengths) if length <= grouped_to]
    short_lengths = [lengths[sample] for sample in short]
    for members in alike_samples(short_lengths, block // heads, GROUP_ALLOWANCE):
        group = [short[member] for member in members]
        # [samples, 1] each.
        group_lengths = torch.tensor([lengths[sample] for sample in group])[:, None]
        starts = torch.tensor([tokens[sample].start for sample in group])[:, None]
        # The first sample is the longest; slots beyond a sample's end repeat its last token.
        slots = torch.arange(lengths[group[0]])
        places = (starts + slots.minimum(group_lengths - 1)).flatten()
        empty = slots >= group_lengths
        group_block = _Block(places, len(group), len(slots), slice(0, heads), len(blocks))
        if bool(empty.any()):
            filled = (~empty).flatten().nonzero().flatten()
            group_block = replace(group_block, empty=empty, held=(filled, places[filled]))
        blocks.append(group_block)
    return tuple(blocks)


@dataclass(frozen=True)
class _Plan:
    """How attention is computed.

    Args:
        blocks: Its parts.
        scale: Factor of the scores.
        dropout: Probability.
        seed: Of the keep factors.
    """

    blocks: Sequence[_Block]
    scale: float
    dropout: float
    seed: int

    def keep(self, block: _Block) -> KeepFactors | None:
        """Return the keep factors of a block from their beginning; None without dropout."""
        if dropped_share(self.dropout) == 0:
            return None
        return KeepFactors(self.dropout, self.seed, block.number)

    def work(self, query: Tensor, key: Tensor, value: Tensor) -> "_Work":
        """Bring operands, `[A, T, D]`, to the plan."""
        return _Work(query, key, value, self)


class _PackedAttention(torch.autograd.Function):
    """Joins a plan's work to autograd; saved are the operands, the result and the plan with its seed."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, plan: _Plan | CompiledPlan) -> Tensor:
        heads, tokens, width = value.shape
        context = value.new_empty(tokens, heads, width)
        with autocast_off(query.device):  # Other threads have none; one thread must not differ.
            plan.work(query, key, value).attend(context)
        ctx.save_for_backward(query, key, value, context)
        ctx.plan = plan
        return context

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative(
            "Attention of packed samples on a CPU", "train in float32, with the student's dropout at 0"
        )
        query, key, value, context = ctx.saved_tensors
        # [T, A, D], as the projections gave the operands, so that heads are joined again without a copy.
        grads = []
        for operand in (query, key, value):
            heads, tokens, width = operand.shape
            grads.append(operand.new_empty(tokens, heads, width))
        with autocast_off(query.device):
            ctx.plan.work(query, key, value).differentiate(context, upstream, grads)
        query_grad, key_grad, value_grad = (grad.transpose(0, 1) for grad in grads)
        return query_grad, key_grad, value_grad, None


class _Work:
    """The work of a plan on its operands, block by block.

    Args:
        query: `[A, T, D]`.
        key: Like `query`.
        value: Like `query`.
        plan: How attention is computed.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, plan: _Plan) -> None:
        self.operands = [x.transpose(0, 1) for x in (query, key, value)]
        self.plan = plan
        self.dtype = compute_dtype(query, key, value)
        self.survivors = 1 / (1 - dropped_share(plan.dropout))
        self.scratch = _SCRATCH

    def attend(self, context: Tensor) -> None:
        """Write the context, `[T, A, D]`."""
        run_tasks([partial(self._attend, block, context) for block in self.plan.blocks])

    def differentiate(self, context: Tensor, upstream: Tensor, grads: Sequence[Tensor]) -> None:
        """Write the gradients of the operands, each `[T, A, D]`."""
        run_tasks([partial(self._differentiate, block, context, upstream, grads) for block in self.plan.blocks])

    def _attend(self, block: _Block, context: Tensor) -> None:
        keep = self.plan.keep(block)
        if keep is None and block.length > SHORT:
            self._attend_fast(block, context)
            return
        query, key, value = self._operands(block)
        result = self._buffer("result", value.shape)
        for rows in block.rows():
            probabilities = self._probabilities(query[:, rows], key, block)
            if keep is not None:
                probabilities.mul_(keep.fill(self._buffer("keep", probabilities.shape)))
            torch.bmm(probabilities, value, out=result[:, rows])
        if keep is not None:
            result.mul_(self.survivors)
        block.put(result.view(block.samples, -1, *result.shape[1:]), context)

    def _attend_fast(self, block: _Block, context: Tensor) -> None:
        """Attend by PyTorch's fast attention, which has no dropout."""
        query, key, value = (block.take(operand) for operand in self.operands)
        mask = None
        if block.empty is not None:
            # [samples, 1, 1, length], True for the keys that are attended to.
            mask = ~block.empty[:, None, None]
        result = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.plan.scale)
        block.put(result, context)

    def _differentiate(self, block: _Block, context: Tensor, upstream: Tensor, grads: Sequence[Tensor]) -> None:
        query, key, value = self._operands(block)
        # dO, [units, tokens, D]; 1 / (1 − p) goes with it, since it is the smallest operand.
        outer = self._units("upstream", block, upstream).mul_(self.survivors)
        if block.empty is not None:
            # [units, tokens, D] -> [samples, heads, tokens, D].
            by_sample = outer.view(block.samples, -1, *outer.shape[1:])
            by_sample.masked_fill_(block.empty[:, None, :, None], 0.0)
        # D = rowsum(dO ∘ O).
        products = self._units("context", block, context).mul_(outer)
        row_sums = products.sum(-1, keepdim=True).div_(self.survivors)

        query_grad = self._buffer("of q", query.shape)
        key_grad = self._buffer("of k", key.shape)
        value_grad = self._buffer("of v", value.shape)
        keep = self.plan.keep(block)
        for rows in block.rows():
            probabilities = self._probabilities(query[:, rows], key, block)
            # dS = P ∘ ((dO Vᵀ) ∘ M − D), and P ∘ M in place of P.
            gradient = self._buffer("gradient", probabilities.shape)
            torch.bmm(outer[:, rows], value.mT, out=gradient)
            if keep is None:
                gradient.sub_(row_sums[:, rows]).mul_(probabilities)
            else:
                factors = keep.fill(self._buffer("keep", probabilities.shape))
                gradient.mul_(factors).sub_(row_sums[:, rows]).mul_(probabilities)
                probabilities.mul_(factors)
            # The first rows overwrite the buffers (0 ignores their content), further ones are added.
            beta = int(rows.start > 0)
            value_grad.baddbmm_(probabilities.mT, outer[:, rows], beta=beta)
            torch.bmm(gradient, key, out=query_grad[:, rows])
            key_grad.baddbmm_(gradient.mT, query[:, rows], beta=beta)

        query_grad.mul_(self.plan.scale)
        key_grad.mul_(self.plan.scale)
        for target, units in zip(grads, (query_grad, key_grad, value_grad), strict=True):
            block.put(units.view(block.samples, -1, *units.shape[1:]), target)

    def _operands(self, block: _Block) -> tuple[Tensor, Tensor, Tensor]:
        """Copy the block's queries, keys and values, `[samples · heads, length, D]` each."""
        query, key, value = self.operands
        query_units = self._units("q", block, query)
        key_units = self._units("k", block, key)
        value_units = self._units("v", block, value)
        return query_units, key_units, value_units

    def _units(self, name: str, block: _Block, operand: Tensor) -> Tensor:
        """Copy the block's part of `[T, A, D]`: `[samples · heads, length, D]`."""
        part = block.take(operand)
        return self._buffer(name, part.shape).copy_(part).flatten(0, 1)

    def _buffer(self, name: str, shape: Sequence[int]) -> Tensor:
        return self.scratch.take(name, shape, self.operands[0], self.dtype)

    def _probabilities(self, query: Tensor, key: Tensor, block: _Block) -> Tensor:
        """Compute the probabilities of some queries, `[units, rows, length]`."""
        shape = (*query.shape[:2], key.shape[1])
        scores = self._buffer("scores", shape)
        torch.baddbmm(scores, query, key.mT, beta=0, alpha=self.plan.scale, out=scores)
        if block.empty is not None:
            # [units, rows, length] -> [samples, heads, rows, length].
            by_sample = scores.view(block.samples, -1, *scores.shape[1:])
            by_sample.masked_fill_(block.empty[:, None, None], -torch.inf)
        return torch.softmax(scores, -1, out=self._buffer("probabilities", shape))
