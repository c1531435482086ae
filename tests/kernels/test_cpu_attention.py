"""The compiled kernel computes attention as exactly as PyTorch, with masks of its own."""

import math

import pytest
import torch
from torch.nn import functional as F

from limbeck.kernels.cpu import attention as module
from limbeck.kernels.cpu.attention import compiled_plan
from limbeck.kernels.packed_attention import packed_attention

SCALE = 0.4
LENGTHS = [[1], [301], [16, 17, 15], [64] * 4, [60, 5, 40, 22, 21, 3, 1], [130, 4, 97], [1030]]


def operands(lengths, heads=3, depth=20, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (sum(lengths), heads, depth)
    return [torch.randn(shape, generator=generator).bfloat16().transpose(0, 1).requires_grad_() for _ in range(3)]


def samples_of(tensors, lengths):
    ends = torch.tensor(lengths).cumsum(0).tolist()
    return [[x[:, end - size : end] for x in tensors] for end, size in zip(ends, lengths, strict=True)]


def plain(inputs, lengths, factors=None):
    """softmax(Q Kᵀ · scale) V for every sample, `[T, A, D]`; `factors` of each multiply its probabilities."""
    parts = []
    for number, (query, key, value) in enumerate(samples_of(inputs, lengths)):
        probabilities = (query @ key.mT * SCALE).softmax(-1)
        kept = probabilities if factors is None else probabilities * factors[number]
        parts.append((kept @ value).transpose(0, 1))
    return torch.cat(parts)


def theirs(inputs, lengths):
    own = (
        F.scaled_dot_product_attention(*(x[None] for x in part), scale=SCALE) for part in samples_of(inputs, lengths)
    )
    return torch.cat([found[0].transpose(0, 1) for found in own])


def with_gradients(result, inputs):
    """A result, and the gradients that fixed upstream ones give its inputs; in float64."""
    upstream = torch.randn(result.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return [x.double() for x in (result, *torch.autograd.grad(result, inputs, upstream.to(result.dtype)))]


def in_float64(inputs):
    return [x.detach().double().requires_grad_() for x in inputs]


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("depth", [5, 32, 64, 80])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("block", [module.BLOCK, 1 << 18], ids=lambda size: f"block {size}")
def test_it_is_as_exact_as_pytorch(lengths, depth, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    inputs = operands(lengths, depth=depth)
    exact = in_float64(inputs)
    expected = with_gradients(plain(exact, lengths), exact)
    usual = with_gradients(theirs(inputs, lengths), inputs)
    ours = with_gradients(packed_attention(*inputs, lengths, scale=SCALE, dropout=0.0), inputs)
    for found, other, wanted in zip(ours, usual, expected, strict=True):
        assert (found - wanted).norm() <= 1.2 * (other - wanted).norm() + 1e-5


def test_processors_without_these_instructions_compute_the_same(compiler, poorer_compiler, monkeypatch, request):
    request.addfinalizer(module.kernel_or_reason.cache_clear)
    lengths = [21, 130, 1]
    found = []
    for named in (compiler, poorer_compiler):
        monkeypatch.setenv("CC", named)
        module.kernel_or_reason.cache_clear()
        monkeypatch.setattr(module, "_length_of_fast_forward", lambda library: 1 << 30)
        torch.manual_seed(5)
        inputs = operands(lengths, depth=33)
        assert not isinstance(module.kernel_or_reason(), str)
        found.append(with_gradients(packed_attention(*inputs, lengths, scale=SCALE, dropout=0.1), inputs))
    for ours, other in zip(*found, strict=True):
        assert (ours - other).norm() <= 2e-3 * other.norm()


def keep_factors(lengths, dropout, heads=3, depth=256):
    """Keep factors of each sample, `[A, L, L]`: queries of 0 attend alike, the unit matrix hands that out."""
    nothing = torch.zeros(heads, sum(lengths), depth, dtype=torch.bfloat16)
    value = torch.cat([torch.eye(size, depth) for size in lengths]).bfloat16().expand(heads, -1, -1)
    shares = packed_attention(nothing, nothing, value, lengths, scale=SCALE, dropout=dropout)
    parts = samples_of([shares.transpose(0, 1)], lengths)
    return [(own[..., :size] > 0).double() / (1 - dropout) for (own,), size in zip(parts, lengths, strict=True)]


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("block", [1 << 15, 64], ids=lambda size: f"block {size}")
@pytest.mark.parametrize("lengths", [[7], [30, 2, 28, 100, 3, 3]], ids=str)
def test_dropout_is_a_mask_on_probabilities(lengths, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    torch.manual_seed(3)
    state, factors = torch.get_rng_state(), keep_factors(lengths, 0.25)
    torch.set_rng_state(state)
    inputs = operands(lengths)
    found = with_gradients(packed_attention(*inputs, lengths, scale=SCALE, dropout=0.25), inputs)
    exact = in_float64(inputs)
    for ours, wanted in zip(found, with_gradients(plain(exact, lengths, factors), exact), strict=True):
        assert (ours - wanted).norm() <= 5e-3 * wanted.norm()


@pytest.mark.usefixtures("compiler")
def test_every_head_and_sample_draws_its_own():
    torch.manual_seed(4)
    first, second = (factors > 0 for factors in keep_factors([60, 60], 0.1))
    again, _ = (factors > 0 for factors in keep_factors([60, 60], 0.1))
    kept = torch.cat([first, second, again]).double()
    assert abs(float(kept.mean()) - 0.9) < 5 * math.sqrt(0.09 / kept.numel())
    # Those of any two streams agree as often as chance has it: 0.9² + 0.1².
    flat = kept.flatten(1)
    agreeing = (flat @ flat.T + (1 - flat) @ (1 - flat).T) / flat.shape[1]
    others = agreeing[~torch.eye(len(flat), dtype=torch.bool)]
    assert (others - 0.82).abs().max() < 5 * math.sqrt(0.82 * 0.18 / flat.shape[1])


@pytest.mark.usefixtures("compiler")
def test_neither_threads_nor_strides_change_the_result(two_threads):
    lengths, found = [30, 20, 25, 90], []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(7)
        inputs = operands(lengths)
        found.append(with_gradients(packed_attention(*inputs, lengths, scale=SCALE, dropout=0.2), inputs))
    torch.manual_seed(7)
    inputs = [x.detach().mT.contiguous().mT.requires_grad_() for x in operands(lengths)]
    found.append(with_gradients(packed_attention(*inputs, lengths, scale=SCALE, dropout=0.2), inputs))
    for each in found:
        torch.testing.assert_close(each, found[0], rtol=0, atol=0)


@pytest.mark.usefixtures("compiler")
def test_an_upstream_gradient_that_is_one_number():
    inputs = operands([9, 4])
    exact = in_float64(inputs)
    found = torch.autograd.grad(packed_attention(*inputs, [9, 4], scale=SCALE, dropout=0.0).sum(), inputs[2])[0]
    wanted = torch.autograd.grad(plain(exact, [9, 4]).sum(), exact[2])[0]
    torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_what_is_not_a_number_stays_so(operand):
    inputs = operands([20, 5])
    with torch.no_grad():
        inputs[operand][0, 3, 0] = torch.nan
    found = packed_attention(*inputs, [20, 5], scale=SCALE, dropout=0.0)
    assert found[:20, 0].isnan().any()
    assert not found[20:].isnan().any()
    assert not found[:, 1:].isnan().any()


def test_other_formats_and_widths_are_not_for_it():
    query, key, value = operands([4])
    assert compiled_plan(query.float(), key.float(), value.float(), [4], scale=SCALE, dropout=0.0) is None
    assert compiled_plan(query, key, value[..., :8], [4], scale=SCALE, dropout=0.0) is None
