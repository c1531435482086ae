"""Packed attention equals plain attention sample by sample, with the same dropout mask where there is one.

Groups hold every valid token once, waste little, and packing puts back the tokens it took.
"""

import math

import pytest
import torch

from limbeck.errors import KernelError
from limbeck.kernels import packed_attention as module
from limbeck.kernels.dropout import dropped_share
from limbeck.kernels.packed_attention import packed_attention
from limbeck.kernels.sample_groups import PADDING_ALLOWANCE, pack, plan_groups, unpack_into

HEADS, WIDTH = 3, 5
LENGTHS = [[7], [1, 1, 1], [4, 1, 9], [6, 6], [30, 2, 28, 100, 3, 3]]


@pytest.fixture(params=[False, True], ids=["alone", "in groups"])
def in_groups(request, monkeypatch):
    """Samples each alone as in float32, or in groups of like length as in bfloat16, here in float64."""
    if request.param:
        monkeypatch.setattr(module, "HALVES", (torch.float64,))


def operands(lengths, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (HEADS, sum(lengths), WIDTH)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for _ in range(3)]


def plain(query, key, value, lengths, scale, factors=None):
    """softmax(Q Kᵀ · scale) V for every sample and head by itself, `[T, A, D]`; `factors` multiply probabilities."""
    parts = []
    for sample, (end, size) in enumerate(zip(torch.tensor(lengths).cumsum(0).tolist(), lengths, strict=True)):
        q, k, v = (x[:, end - size : end] for x in (query, key, value))
        probabilities = torch.stack([(q[head] @ k[head].T * scale).softmax(-1) for head in range(HEADS)])
        kept = probabilities if factors is None else probabilities * factors[sample]
        parts.append(torch.stack([kept[head] @ v[head] for head in range(HEADS)], 1))
    return torch.cat(parts)


def drawn_factors(query, key, lengths, scale, dropout):
    """Keep factors read off the result: with the unit matrix as values, attention hands out its probabilities."""
    longest = max(lengths)
    value = torch.cat([torch.eye(size, longest, dtype=torch.float64) for size in lengths]).expand(HEADS, -1, -1)
    undropped = packed_attention(query, key, value, lengths, scale=scale)
    dropped = packed_attention(query, key, value, lengths, scale=scale, dropout=dropout)
    shares = (dropped / undropped).nan_to_num().transpose(0, 1)
    ends = torch.tensor(lengths).cumsum(0).tolist()
    return [shares[:, end - size : end, :size] for size, end in zip(lengths, ends, strict=True)]


def with_gradients(result, inputs):
    """A result, and the gradients that fixed upstream ones give its inputs; in float64."""
    upstream = torch.randn(result.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return [x.double() for x in (result, *torch.autograd.grad(result, inputs, upstream.to(result.dtype)))]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.usefixtures("in_groups")
def test_without_dropout_it_is_attention(lengths):
    inputs = operands(lengths)
    found, expected = packed_attention(*inputs, lengths, scale=0.4), plain(*inputs, lengths, 0.4)
    torch.testing.assert_close(*(with_gradients(x, inputs) for x in (found, expected)), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("block", [1 << 19, 12, 1], ids=lambda size: f"block {size}")
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.usefixtures("in_groups")
def test_dropout_is_a_mask_on_probabilities(lengths, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    inputs, scale, dropout = operands(lengths), 0.4, 0.25
    state = torch.get_rng_state()
    factors = drawn_factors(*inputs[:2], lengths, scale, dropout)
    for part in factors:
        values = torch.tensor([0, 1 / (1 - dropped_share(dropout))], dtype=torch.float64)
        assert torch.all((part[..., None] - values).abs().amin(-1) < 1e-9)
    torch.set_rng_state(state)
    found = packed_attention(*inputs, lengths, scale=scale, dropout=dropout)
    expected = plain(*inputs, lengths, scale, [part.detach() for part in factors])
    torch.testing.assert_close(*(with_gradients(x, inputs) for x in (found, expected)), rtol=1e-9, atol=1e-9)


def test_the_share_of_dropped_probabilities(monkeypatch):
    """Every block, here of one head, draws its own."""
    monkeypatch.setattr(module, "BLOCK", 1)
    first, second = drawn_factors(*operands([60, 60])[:2], [60, 60], 0.3, 0.1)
    dropped = torch.cat([first, second]) == 0
    assert abs(float(dropped.double().mean()) - 0.1) < 5 * math.sqrt(0.09 / dropped.numel())
    assert len(dropped.flatten(1).unique(dim=0)) == 2 * HEADS


@pytest.fixture
def uncompiled(monkeypatch):
    """A machine without a C compiler."""
    monkeypatch.setattr(module, "compiled_plan", lambda *_, **__: None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.usefixtures("uncompiled")
def test_lower_formats(dtype, dropout):
    lengths, found = [33, 12], []
    inputs = operands(lengths, dtype)
    for given in (inputs, [x.detach().double().requires_grad_() for x in inputs]):
        torch.manual_seed(5)
        result = packed_attention(*given, lengths, scale=0.4, dropout=dropout)
        assert result.dtype == given[0].dtype
        found.append(with_gradients(result, given))
    tolerance = {torch.float32: 1e-5}.get(dtype, 3e-2)
    torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lengths", [[64] * 4, [60, 5, 40, 22, 21, 3], [130, 97]], ids=str)
@pytest.mark.usefixtures("uncompiled")
def test_bfloat16_is_as_exact_as_pytorch(lengths):
    given = operands(lengths, torch.bfloat16)
    exact = [x.detach().double().requires_grad_() for x in given]
    ends = torch.tensor(lengths).cumsum(0).tolist()
    parts = [[x[None, :, end - size : end] for x in given] for end, size in zip(ends, lengths, strict=True)]
    theirs = torch.cat(
        [torch.nn.functional.scaled_dot_product_attention(*own, scale=0.4)[0].transpose(0, 1) for own in parts]
    )
    expected = with_gradients(plain(*exact, lengths, 0.4), exact)
    ours = with_gradients(packed_attention(*given, lengths, scale=0.4), given)
    for found, usual, wanted in zip(ours, with_gradients(theirs, given), expected, strict=True):
        assert (found - wanted).norm() <= 2 * (usual - wanted).norm()


def test_neither_threads_nor_autocast_change_the_result(two_threads, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 1000)
    lengths = [30, 20, 25]
    for dtype in (torch.float64, torch.float32):
        found = []
        for threads, autocast in ((1, False), (3, False), (1, True), (2, True)):
            torch.set_num_threads(threads)
            torch.manual_seed(7)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                inputs = operands(lengths, dtype)
                found.append(with_gradients(packed_attention(*inputs, lengths, scale=0.4, dropout=0.2), inputs))
        for each in found:
            torch.testing.assert_close(each, found[0], rtol=0, atol=0)


def test_a_second_derivative_is_refused():
    inputs = operands([4])
    found = packed_attention(*inputs, [4], scale=0.4, dropout=0.2)
    with pytest.raises(KernelError, match="second derivative"):
        torch.autograd.grad(found.sum(), inputs, create_graph=True)


def test_everything_dropped():
    inputs = operands([3, 2])
    found = packed_attention(*inputs, [3, 2], scale=0.4, dropout=1.0)
    assert torch.equal(found, torch.zeros(5, HEADS, WIDTH, dtype=torch.float64))
    assert torch.autograd.grad(found.sum(), inputs[2])[0].abs().max() == 0


@pytest.mark.parametrize("lengths", [[], [5], [3, 0, 4], [8, -1]], ids=str)
def test_lengths_that_do_not_fit(lengths):
    with pytest.raises(KernelError, match="do not add up to the 7 tokens"):
        packed_attention(*operands([7]), lengths, scale=0.4, dropout=0.1)


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("block", [1, 500, 10**6])
def test_packing_and_back(block, on_host):
    torch.manual_seed(0)
    batch, length, heads = 9, 11, 2
    valid = torch.rand(batch, length) < torch.linspace(0, 1, batch)[:, None]
    x = torch.randn(batch, length, 6).masked_fill(~valid[..., None], float("nan"))
    back = torch.zeros_like(x)
    for group in plan_groups(x, valid, heads, block, on_host):
        out = torch.full((group.samples * heads, group.length, 3), float("nan"))
        units = pack(x, group, heads, out)
        assert units.isfinite().all()
        unpack_into(back, units.transpose(1, 2), group)
    assert torch.equal(back, x.nan_to_num())


def test_groups_waste_little():
    torch.manual_seed(0)
    lengths = torch.randint(16, 129, (64,))
    valid = torch.arange(128) < lengths[:, None]
    x, heads = torch.zeros(64, 128, 8), 4
    groups = list(plan_groups(x, valid, heads, 1 << 20, True))
    computed = sum(group.samples * group.length**2 for group in groups)
    assert computed <= PADDING_ALLOWANCE * lengths.square().sum()
    assert len(groups) < 24
    assert all(group.samples * group.length**2 * heads <= 1 << 20 for group in groups)


def test_full_batches_are_not_copied_by_index():
    x = torch.zeros(3, 5, 4)
    for valid in (None, torch.ones(3, 5, dtype=torch.bool)):
        assert all(g.index is None and g.filled is None for g in plan_groups(x, valid, 2, 1000, True))
