"""Attention over packed samples on a CPU: no padding, dropout included, and no L×L matrix kept for the backward pass.

A *packed* batch has the tokens of all samples one after the other, without padding.

PyTorch's fast CPU attention has no dropout. With dropout PyTorch makes scores, probabilities and masks of all heads in
full, in the forward and in the backward pass. Its backward pass in bfloat16 takes several times as long as in float32.
Here every thread works on a few heads of one sample, or on short samples of like length, in memory that stays in cache,
and the backward pass computes the probabilities again.

    S = Q Kᵀ · scale,  P = softmax(S),  M = keep factors / (1 − p),  O = (P ∘ M) V
    dV = (P ∘ M)ᵀ dO,  G = (dO Vᵀ) ∘ M,  D = rowsum(P ∘ G),  dS = P ∘ (G − D),  dQ = dS K · scale,  dK = dSᵀ Q · scale

with Q, K, V the queries, keys and values of one head of one sample, a *unit*, O its context, and dX the gradient of X.
In shapes, A is the number of heads, T that of the tokens of all samples, and D that of the numbers of a head.

Source: the backward pass is that of FlashAttention (arXiv 2205.14135, appendix B.4), but for D.

**Rounding.** The backward pass computes scores again, and nothing makes them round as in the forward pass: its tiles
may be others, and PyTorch's attention computes some of the contexts. FlashAttention takes D = rowsum(dO ∘ O), which is
the same number D' with the probabilities P' of the forward pass, rounded with O. A row of dS then sums to D − D' rather
than to 0, and dQ is off by (D − D') k where the keys of a sample share an offset k. In transformers they do: in scores
of thousands P and P' differ in the fourth digit, and k is many times the rest of a key. Here D is of the same P and G
as dS. A row of dS sums to D (1 − Σ P), which is rounding of the last digit, as in PyTorch's own softmax. So no number
of one pass has to agree with one of the other: gradients are as exact as those of scores that are computed once.

Without this file and its kernel in C a whole step takes 1.3 to 1.5 times as long
(benchmarks/results/kernel_steps.json).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.errors import KernelError
from limbeck.kernels.cpu.attention import CompiledPlan, compiled_plan
from limbeck.kernels.dropout import KeepFactors, draw_seed, dropped_share
from limbeck.kernels.precision import autocast_off, compute_dtype, refuse_second_derivative
from limbeck.kernels.sample_groups import alike_samples
from limbeck.kernels.workers import Scratch, run_tasks

# Most scores of a block that a thread works on; it holds three tensors of this size.
BLOCK = 1 << 19
# Samples of at most this length are computed in groups of like length: alone, starting an operation costs more than it.
GROUPED_TO = 32
# All samples of a group are padded to the longest. At most this many times the scores that they need are computed.
GROUP_ALLOWANCE = 1.5
# In the forward pass, float32 products are faster than PyTorch's fast attention in bfloat16 up to this length.
SHORT = 24
HALVES = (torch.bfloat16, torch.float16)
# A few megabytes for each thread, kept between calls: to map them anew would take a fifth of a backward pass over
# short samples.
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
            f"Lengths {list(lengths)[:8]} do not add up to the {tokens} tokens of the batch; give lengths of 1 or "
            "more with this sum."
        )
    share = dropped_share(dropout)
    if share == 1:
        # Everything is dropped. The product with 0 keeps the result in the graph of autograd.
        return value.transpose(0, 1) * 0
    is_half = value.dtype in HALVES
    if share == 0 and not is_half:
        return _attend_by_sample(query, key, value, lengths, scale)

    plan: CompiledPlan | _Plan | None = compiled_plan(query, key, value, lengths, scale=scale, dropout=dropout)
    if plan is None:
        heads = len(value)
        grouped_to = GROUPED_TO if is_half else 0
        blocks = _divide_into_blocks(tuple(lengths), heads, grouped_to=grouped_to, block_scores=BLOCK)
        seed = draw_seed() if share > 0 else 0
        plan = _Plan(blocks, scale, dropout, seed)
    context: Tensor = _PackedAttention.apply(query, key, value, plan)
    return context


def _attend_by_sample(query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float) -> Tensor:
    """Attend by PyTorch's fast attention, one sample after the other; `[T, A, D]`."""
    contexts = []
    for tokens in _token_slices(lengths):
        # PyTorch's fast attention takes four axes only: [1, A, tokens, D].
        sample_query = query[None, :, tokens]
        sample_key = key[None, :, tokens]
        sample_value = value[None, :, tokens]
        context = F.scaled_dot_product_attention(sample_query, sample_key, sample_value, scale=scale)
        contexts.append(context[0].transpose(0, 1))
    return torch.cat(contexts)


def _token_slices(lengths: Sequence[int]) -> list[slice]:
    """Return the tokens of each sample."""
    ends = accumulate(lengths)
    return [slice(end - length, end) for length, end in zip(lengths, ends, strict=True)]


class _PackedAttention(torch.autograd.Function):
    """Joins a plan's work to autograd; saved are the operands and the plan with its seed."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, plan: "_Plan | CompiledPlan") -> Tensor:
        heads, tokens, width = value.shape
        context = value.new_empty(tokens, heads, width)
        with autocast_off(query.device):  # Autocast is not on in other threads, and must not be on in this one alone.
            plan.work(query, key, value).attend(context)
        ctx.save_for_backward(query, key, value)
        ctx.plan = plan
        return context

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative(
            "Attention of packed samples on a CPU", "train in float32, with the student's dropout at 0"
        )
        query, key, value = ctx.saved_tensors
        # [T, A, D], the layout in which the model's projections gave the operands, so that heads are joined again
        # without a copy.
        grads = []
        for operand in (query, key, value):
            heads, tokens, width = operand.shape
            grads.append(operand.new_empty(tokens, heads, width))
        with autocast_off(query.device):
            ctx.plan.work(query, key, value).differentiate(upstream, grads)
        query_grad, key_grad, value_grad = (grad.transpose(0, 1) for grad in grads)
        # The plan has no gradient.
        return query_grad, key_grad, value_grad, None


@dataclass(frozen=True)
class _Block(ABC):
    """Some heads of one sample, or of samples of like length, which are computed together.

    Args:
        samples: Number of samples.
        length: Slots for tokens of each sample; the last slots of a sample may be empty.
        heads: The heads.
        number: Number of the block, which chooses the random stream of its keep factors (the dropout mask).
    """

    samples: int
    length: int
    heads: slice
    number: int

    @property
    def empty(self) -> Tensor | None:
        """Slots that hold no token, bool `[samples, length]`; None where all hold one."""
        return None

    def rows(self) -> Iterator[slice]:
        """Yield ranges of the query tokens of each sample, whose scores fit into a block."""
        scores_of_a_row = self.samples * self.length * (self.heads.stop - self.heads.start)
        step = max(1, BLOCK // scores_of_a_row)
        for first in range(0, self.length, step):
            yield slice(first, min(first + step, self.length))

    @abstractmethod
    def take(self, operand: Tensor) -> Tensor:
        """Take the block's part of `[T, A, D]`: `[samples, heads, length, D]`."""

    @abstractmethod
    def put(self, part: Tensor, target: Tensor) -> None:
        """Write `[samples, heads, length, D]` to the block's part of `[T, A, D]`, but for slots that are empty."""


@dataclass(frozen=True)
class _SampleBlock(_Block):
    """Some heads of one sample.

    Args:
        tokens: The sample's.
    """

    tokens: slice

    def take(self, operand: Tensor) -> Tensor:
        """Take the block's part, a view; see `_Block.take`."""
        return operand[self.tokens, self.heads].transpose(0, 1)[None]

    def put(self, part: Tensor, target: Tensor) -> None:
        """Write the block's part; see `_Block.put`."""
        target[self.tokens, self.heads] = part[0].transpose(0, 1).to(target.dtype)


class _FilledSlots(NamedTuple):
    """The slots of a group that hold a token.

    Attributes:
        numbers: Indices of these slots, from 0 up to samples · length.
        tokens: Index of the token in each of them.
    """

    numbers: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class _GroupBlock(_Block):
    """All heads of samples of like length, each with as many slots as the longest has tokens.

    Args:
        tokens: The token of each slot, `[samples · length]`; slots behind a sample's end repeat its last token.
        empty_slots: Slots that hold no token, bool `[samples, length]`; None where all hold one.
        filled: The slots that hold one; None where all do.
    """

    tokens: Tensor
    empty_slots: Tensor | None
    filled: _FilledSlots | None

    @property
    def empty(self) -> Tensor | None:
        """Slots that hold no token; see `_Block.empty`."""
        return self.empty_slots

    def take(self, operand: Tensor) -> Tensor:
        """Take the block's part, a copy; see `_Block.take`."""
        rows = operand.flatten(1).index_select(0, self.tokens)
        return rows.view(self.samples, self.length, *operand.shape[1:]).transpose(1, 2)

    def put(self, part: Tensor, target: Tensor) -> None:
        """Write the block's part; see `_Block.put`."""
        # [samples, heads, length, D] -> [samples · length, heads · D].
        rows = part.transpose(1, 2).to(target.dtype).flatten(0, 1).flatten(1)
        tokens = self.tokens
        if self.filled is not None:
            rows = rows.index_select(0, self.filled.numbers)
            tokens = self.filled.tokens
        target.flatten(1).index_copy_(0, tokens, rows)


@lru_cache(maxsize=8)
def _divide_into_blocks(
    lengths: tuple[int, ...], heads: int, *, grouped_to: int, block_scores: int
) -> tuple[_Block, ...]:
    """Divide the samples into blocks: some heads of a long sample, or all heads of short samples of like length.

    Args:
        lengths: Tokens of each sample.
        heads: Attention heads.
        grouped_to: Length up to which samples are short, and are grouped.
        block_scores: Most scores of a block of several heads or samples.
    """
    blocks: list[_Block] = []
    token_slices = _token_slices(lengths)
    # Each long sample by itself. A block has as many of its heads as have `block_scores` scores together.
    for tokens, length in zip(token_slices, lengths, strict=True):
        if length <= grouped_to:
            continue
        heads_at_once = max(1, min(heads, block_scores // length**2))
        for first_head in range(0, heads, heads_at_once):
            head_part = slice(first_head, min(first_head + heads_at_once, heads))
            blocks.append(_SampleBlock(samples=1, length=length, heads=head_part, number=len(blocks), tokens=tokens))

    # Short samples of like length together, with all heads.
    short_samples = [sample for sample, length in enumerate(lengths) if length <= grouped_to]
    short_lengths = [lengths[sample] for sample in short_samples]
    for group in alike_samples(short_lengths, block_scores // heads, GROUP_ALLOWANCE):
        # The group has indices of short samples, which are turned into those of all samples.
        samples = [short_samples[index] for index in group]
        group_lengths = [lengths[sample] for sample in samples]
        starts = [token_slices[sample].start for sample in samples]
        blocks.append(_group_block(starts, group_lengths, heads, number=len(blocks)))
    return tuple(blocks)


def _group_block(starts: list[int], lengths: list[int], heads: int, *, number: int) -> _GroupBlock:
    """Return the block of some samples, each with as many slots as the longest has tokens.

    Args:
        starts: First token of each sample.
        lengths: Tokens of each sample, the longest first.
        heads: Attention heads.
        number: Number of the block.
    """
    # [samples, 1] each.
    starts_by_sample = torch.tensor(starts)[:, None]
    lengths_by_sample = torch.tensor(lengths)[:, None]
    # The numbers of the slots of a sample, [length of the longest].
    slots = torch.arange(lengths[0])
    # Slots behind a sample's end repeat its last token.
    tokens = (starts_by_sample + slots.minimum(lengths_by_sample - 1)).flatten()
    is_empty = slots >= lengths_by_sample
    empty_slots = None
    filled = None
    if bool(is_empty.any()):
        empty_slots = is_empty
        slot_numbers = (~is_empty).flatten().nonzero().flatten()
        filled = _FilledSlots(slot_numbers, tokens[slot_numbers])
    return _GroupBlock(
        samples=len(starts),
        length=lengths[0],
        heads=slice(0, heads),
        number=number,
        tokens=tokens,
        empty_slots=empty_slots,
        filled=filled,
    )


@dataclass(frozen=True)
class _Plan:
    """A division of attention into blocks, with the numbers that it is computed by.

    Args:
        blocks: The blocks, which threads compute in any order.
        scale: Factor of the scores.
        dropout: Probability that a probability is set to 0.
        seed: Seed of the keep factors.
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
        """Return the work of this plan on its operands, `[A, T, D]` each."""
        return _Work(query, key, value, self)


class _Units(NamedTuple):
    """Queries, keys and values of a block by unit, `[units, length, D]` each."""

    q: Tensor
    k: Tensor
    v: Tensor


class _Work:
    """The work of a plan on its operands, block by block.

    Args:
        query: `[A, T, D]`.
        key: Like `query`.
        value: Like `query`.
        plan: How attention is computed.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, plan: _Plan) -> None:
        # [T, A, D].
        self.query = query.transpose(0, 1)
        self.key = key.transpose(0, 1)
        self.value = value.transpose(0, 1)
        self.plan = plan
        self.dtype = compute_dtype(query, key, value)
        # The factor 1 / (1 − p) of probabilities that are kept.
        self.keep_scale = 1 / (1 - dropped_share(plan.dropout))
        self.scratch = _SCRATCH

    def attend(self, context: Tensor) -> None:
        """Write the context, `[T, A, D]`."""
        run_tasks([partial(self._attend, block, context) for block in self.plan.blocks])

    def differentiate(self, upstream: Tensor, grads: Sequence[Tensor]) -> None:
        """Write the gradients of the operands, each `[T, A, D]`.

        Args:
            upstream: dO, `[T, A, D]`.
            grads: Receive dQ, dK and dV.
        """
        run_tasks([partial(self._differentiate, block, upstream, grads) for block in self.plan.blocks])

    def _attend(self, block: _Block, context: Tensor) -> None:
        """Write a block's part of the context."""
        # The factors of dropout, 0 or 1; None without dropout.
        keep = self.plan.keep(block)
        if keep is None and block.length > SHORT:
            # Without dropout, PyTorch's fast attention is the faster one for all but short samples.
            self._attend_fast(block, context)
            return
        # A unit is one head of one sample. The blocks that a thread computes share its buffers, which are allocated for
        # the first block and for larger ones.
        units = self._take_operands(block)
        result = self._buffer("result", units.v.shape)  # [units, length, D]
        for rows in block.rows():
            probabilities = self._probabilities(units.q[:, rows], units.k, block)
            if keep is not None:
                probabilities.mul_(keep.fill(self._buffer("keep", probabilities.shape)))
            torch.bmm(probabilities, units.v, out=result[:, rows])
        if keep is not None:
            result.mul_(self.keep_scale)
        block.put(_view_by_sample(result, block), context)

    def _attend_fast(self, block: _Block, context: Tensor) -> None:
        """Attend by PyTorch's fast attention, which has no dropout."""
        query = block.take(self.query)
        key = block.take(self.key)
        value = block.take(self.value)
        mask = None
        if block.empty is not None:
            # [samples, 1, 1, length], True for the keys that are attended to.
            mask = ~block.empty[:, None, None]
        result = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.plan.scale)
        block.put(result, context)

    def _differentiate(self, block: _Block, upstream: Tensor, grads: Sequence[Tensor]) -> None:
        """Write a block's part of the gradients; arguments as of `differentiate`.

            dV = (P ∘ M)ᵀ dO,  G = (dO Vᵀ) ∘ M,  D = rowsum(P ∘ G),  dS = P ∘ (G − D),  dQ = dS K,  dK = dSᵀ Q

        with P the probabilities, M the factors of dropout over 1 − p, and dO the upstream gradient. dQ and dK are
        multiplied by the scale of the scores in the end.
        """
        units = self._take_operands(block)
        # dO / (1 − p), [units, length, D]. The factor 1 / (1 − p) of M is applied here, to the smallest operand.
        scaled_upstream = self._take_units("upstream", block, upstream).mul_(self.keep_scale)
        if block.empty is not None:
            _view_by_sample(scaled_upstream, block).masked_fill_(block.empty[:, None, :, None], 0.0)

        # dQ, dK and dV, [units, length, D].
        query_grad = self._buffer("of q", units.q.shape)
        key_grad = self._buffer("of k", units.k.shape)
        value_grad = self._buffer("of v", units.v.shape)
        keep = self.plan.keep(block)
        for rows in block.rows():
            # P, [units, rows, length].
            probabilities = self._probabilities(units.q[:, rows], units.k, block)
            # G, [units, rows, length].
            context_grad = self._buffer("gradient", probabilities.shape)
            torch.bmm(scaled_upstream[:, rows], units.v.mT, out=context_grad)
            factors = None
            if keep is not None:
                factors = keep.fill(self._buffer("keep", probabilities.shape))
                context_grad.mul_(factors)
            # dS = P ∘ G − P · D in the memory of G, with D = rowsum(P ∘ G), [units, rows, 1].
            products = context_grad.mul_(probabilities)
            row_sums = products.sum(-1, keepdim=True)
            score_grad = products.addcmul_(probabilities, row_sums, value=-1)
            if factors is not None:
                # P ∘ M but for its factor, which is in the upstream gradient.
                probabilities.mul_(factors)
            torch.bmm(score_grad, units.k, out=query_grad[:, rows])
            # Each range of rows adds to the gradients of all keys and values. With beta = 0 the first one overwrites
            # what the buffers held before.
            beta = 0 if rows.start == 0 else 1
            value_grad.baddbmm_(probabilities.mT, scaled_upstream[:, rows], beta=beta)
            key_grad.baddbmm_(score_grad.mT, units.q[:, rows], beta=beta)

        query_grad.mul_(self.plan.scale)
        key_grad.mul_(self.plan.scale)
        for target, unit_grad in zip(grads, (query_grad, key_grad, value_grad), strict=True):
            block.put(_view_by_sample(unit_grad, block), target)

    def _probabilities(self, query: Tensor, key: Tensor, block: _Block) -> Tensor:
        """Compute P of some queries, `[units, rows, length]`.

        Args:
            query: `[units, rows, D]`.
            key: `[units, length, D]`.
            block: Their block.
        """
        shape = (*query.shape[:2], key.shape[1])
        scores = self._buffer("scores", shape)
        torch.baddbmm(scores, query, key.mT, beta=0, alpha=self.plan.scale, out=scores)
        if block.empty is not None:
            _view_by_sample(scores, block).masked_fill_(block.empty[:, None, None], -torch.inf)
        return torch.softmax(scores, -1, out=self._buffer("probabilities", shape))

    def _take_operands(self, block: _Block) -> _Units:
        """Copy the block's queries, keys and values."""
        return _Units(
            q=self._take_units("q", block, self.query),
            k=self._take_units("k", block, self.key),
            v=self._take_units("v", block, self.value),
        )

    def _take_units(self, name: str, block: _Block, operand: Tensor) -> Tensor:
        """Copy the block's part of `[T, A, D]`: `[units, length, D]`."""
        part = block.take(operand)
        return self._buffer(name, part.shape).copy_(part).flatten(0, 1)

    def _buffer(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return this thread's memory of a name, in a shape; its content is undefined."""
        return self.scratch.take(name, shape, self.query, self.dtype)


def _view_by_sample(units: Tensor, block: _Block) -> Tensor:
    """View `[units, …]` of a block as `[samples, heads, …]`."""
    return units.view(block.samples, -1, *units.shape[1:])
