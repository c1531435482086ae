"""`fast_gelu` is PyTorch's GELU in bfloat16, bit for bit, value and gradient, from tables of all numbers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from limbeck.kernels import tabulated_gelu
from limbeck.kernels.tabulated_gelu import SHORTEST, fast_gelu
from limbeck.models import tap_points


@pytest.fixture
def compiled():
    made = tabulated_gelu.kernel()
    if isinstance(made, str):
        pytest.skip(made)
    return made


@pytest.fixture
def runs(compiled, monkeypatch):
    """How often the kernel ran."""
    counted = []
    look_up = tabulated_gelu._look_up
    monkeypatch.setattr(tabulated_gelu, "_look_up", lambda *given: counted.append(1) or look_up(*given))
    return counted


def all_numbers():
    """Every number of bfloat16, and some more, so that the last vector is not whole."""
    bits = torch.arange((1 << 16) + 5, dtype=torch.int32).to(torch.int16)
    return bits.view(torch.bfloat16)


def without_subnormal(x):
    """Processors round to bfloat16 with subnormal numbers or without."""
    return x.detach().masked_fill(x.abs() < torch.finfo(torch.bfloat16).tiny, 0)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_number_has_the_value_and_the_slope_of_pytorch(approximate, threads, runs):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, upstream = all_numbers(), torch.randn(len(all_numbers())).bfloat16()
        own, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, wanted = fast_gelu(own, approximate), F.gelu(other, approximate=approximate)
        found.backward(upstream)
        wanted.backward(upstream)
    finally:
        torch.set_num_threads(before)
    assert len(runs) == 2
    same = {"rtol": 0, "atol": 0, "equal_nan": True}
    torch.testing.assert_close(without_subnormal(found), without_subnormal(wanted), **same)
    torch.testing.assert_close(without_subnormal(own.grad), without_subnormal(other.grad), **same)


def test_the_table_is_gelu_in_float64(compiled):
    x = all_numbers()
    x = x[x.isfinite() & (x.abs() < 30)]
    wanted = 0.5 * x.double() * torch.special.erfc(-x.double() / 2**0.5)
    # Half a digit of bfloat16; far below 0 PyTorch's float32 has no digit of Φ left, where GELU is nearly 0.
    assert bool(((fast_gelu(x).double() - wanted).abs() <= wanted.abs() * 2**-8 + 1e-6).all())


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2 * SHORTEST),
        torch.randn(SHORTEST - 1).bfloat16(),
        torch.randn(300, 300).bfloat16().t(),
        torch.randn(4, SHORTEST).bfloat16()[:, ::2],
    ],
    ids=["float32", "short", "transposed", "with gaps"],
)
def test_what_it_cannot_read_is_pytorchs(x, runs):
    assert torch.equal(fast_gelu(x), F.gelu(x))
    assert not runs


def test_second_derivatives_and_transforms_are_pytorchs(compiled):
    x = torch.randn(2 * SHORTEST).bfloat16().requires_grad_()
    (slope,) = torch.autograd.grad(fast_gelu(x).sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(slope.sum(), x)
    (wanted,) = torch.autograd.grad(torch.autograd.grad(F.gelu(x).sum(), x, create_graph=True)[0].sum(), x)
    assert torch.equal(found, wanted)
    rows = x.detach().view(2, -1)
    assert torch.equal(torch.func.vmap(fast_gelu)(rows), F.gelu(rows))


def test_a_slope_is_taken_over_a_gradient_with_gaps(compiled):
    x = torch.randn(2, SHORTEST).bfloat16().requires_grad_()
    upstream = torch.randn(SHORTEST, 2).bfloat16().t()
    (found,) = torch.autograd.grad(fast_gelu(x), x, upstream)
    (wanted,) = torch.autograd.grad(F.gelu(x), x, upstream)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("module", [ACT2FN["gelu"], nn.GELU(), nn.GELU("tanh")], ids=["gelu", "nn", "nn tanh"])
def test_modules_run_by_it_until_they_are_detached(module, runs):
    x = torch.randn(2 * SHORTEST).bfloat16()
    wanted = module(x)
    model = nn.Sequential(module)
    tap_points.attach_elementwise(model)
    assert torch.equal(model(x), wanted)
    assert len(runs) == 1
    tap_points.detach(model)
    assert torch.equal(model(x), wanted)
    assert len(runs) == 1


def test_other_activations_stay(runs):
    x = torch.randn(2 * SHORTEST).bfloat16()
    for name in ("gelu_new", "gelu_python", "silu", "relu"):
        module = ACT2FN[name]
        model = nn.Sequential(module)
        tap_points.attach_elementwise(model)
        assert torch.equal(model(x), module(x))
    assert not runs
