"""What a backward pass computes again need not have the bits of the forward pass: attention of packed samples.

The scores of the forward pass are thousands, and changed by a share of 2⁻²⁰, far more than another order of a sum would
change them. Errors may be twice those of plain PyTorch, and of such scores that are computed once.
"""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from limbeck.kernels import packed_attention as module
from limbeck.kernels.cpu.attention import CompiledPlan
from limbeck.kernels.packed_attention import packed_attention
from tests.support.tensors import errors

LENGTHS = [40, 64, 9, 33]
HEADS, WIDTH = 2, 32
SCALE = WIDTH**-0.5
CHANGES = [2.0**-20, -(2.0**-20)]
#: Common offsets of two coordinates of keys and queries, and of values, as transformers with outlier coordinates have.
OFFSETS = [(90.0, 0.0), (90.0, 90.0), (0.0, 90.0)]


def draw(offset, value_offset, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (HEADS, sum(LENGTHS), WIDTH)
    outliers = (torch.arange(WIDTH) < 2).double()
    operands = []
    for size in (offset, offset, value_offset):
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64) + size * outliers
        operands.append(numbers.to(dtype))
    return operands


def by_sample(operands):
    ends = torch.tensor(LENGTHS).cumsum(0).tolist()
    for end, length in zip(ends, LENGTHS, strict=True):
        yield [operand[:, end - length : end] for operand in operands]


def plain(operands, scale, factors):
    """softmax(Q Kᵀ · scale) V of each sample, with the factors of its probabilities where there is dropout."""
    contexts = []
    for number, (query, key, value) in enumerate(by_sample(operands)):
        probabilities = (query @ key.mT * scale).softmax(-1)
        if factors is not None:
            probabilities = probabilities * factors[number].to(query.dtype)
        contexts.append((probabilities @ value).transpose(0, 1))
    return torch.cat(contexts)


def by_pytorch(operands, scale, factors):
    """The same by PyTorch's own attention, which has no dropout on a CPU."""
    if factors is not None:
        return plain(operands, scale, factors)
    contexts = []
    for sample in by_sample(operands):
        context = F.scaled_dot_product_attention(*(operand[None] for operand in sample), scale=scale)
        contexts.append(context[0].transpose(0, 1))
    return torch.cat(contexts)


def keep_factors(dtype, dropout, seed):
    """The factors of each sample's probabilities, which scores of 0 and the unit matrix as values show."""
    if dropout == 0:
        return None
    torch.manual_seed(seed)
    nothing = torch.zeros(HEADS, sum(LENGTHS), max(LENGTHS), dtype=dtype)
    value = torch.cat([torch.eye(length, max(LENGTHS), dtype=dtype) for length in LENGTHS]).expand(HEADS, -1, -1)
    shares = packed_attention(nothing, nothing, value, LENGTHS, scale=1.0, dropout=dropout).transpose(0, 1)
    factors = []
    for (kept,), length in zip(by_sample([shares]), LENGTHS, strict=True):
        factors.append((kept[..., :length] > 0).double() / (1 - dropout))
    return factors


def run(attend, operands, dtype):
    """The gradients of queries, keys and values."""
    leaves = [operand.to(dtype).requires_grad_() for operand in operands]
    context = attend(leaves)
    generator = torch.Generator().manual_seed(1)
    upstream = torch.randn(context.shape, generator=generator, dtype=torch.float64).bfloat16().to(dtype)
    return [gradient.double() for gradient in torch.autograd.grad(context, leaves, upstream)]


@pytest.fixture(params=["compiled", "by PyTorch", "float32 with dropout"])
def way(request, monkeypatch):
    """The dtype and the dropout of one of the three ways to compute it."""
    if request.param == "compiled":
        request.getfixturevalue("compiler")
        return torch.bfloat16, 0.0
    monkeypatch.setattr(module, "compiled_plan", lambda *_, **__: None)
    if request.param == "by PyTorch":
        return torch.bfloat16, 0.0
    return torch.float32, 0.25


@pytest.mark.parametrize("change", CHANGES, ids=["more", "less"])
@pytest.mark.parametrize(("offset", "value_offset"), OFFSETS)
def test_scores_of_the_two_passes_may_differ(way, offset, value_offset, change):
    dtype, dropout = way

    def of_two_scores(operands):
        """Attention with other scores in the forward pass than in the backward pass."""
        torch.manual_seed(3)
        context = packed_attention(*operands, LENGTHS, scale=SCALE * (1 + change), dropout=dropout)
        plan = context.grad_fn.plan
        is_compiled = isinstance(plan, CompiledPlan)
        context.grad_fn.plan = plan._replace(scale=SCALE) if is_compiled else replace(plan, scale=SCALE)
        return context

    ours, usual, changed, exact = [], [], [], []
    factors = keep_factors(dtype, dropout, seed=3)
    for seed in range(8):
        operands = draw(offset, value_offset, dtype, seed)
        ours.append(run(of_two_scores, operands, dtype))
        usual.append(run(lambda x: by_pytorch(x, SCALE, factors), operands, dtype))
        changed.append(run(lambda x: plain(x, SCALE * (1 + change), factors), operands, torch.float64))
        exact.append(run(lambda x: plain(x, SCALE, factors), operands, torch.float64))
    assert (errors(ours, exact) <= 2 * (errors(usual, exact) + errors(changed, exact))).all()
