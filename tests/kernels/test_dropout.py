"""`fast_dropout` is dropout, with a mask of keep factors: the right share, from a stream that can begin again."""

import pytest
import torch

from limbeck.kernels.dropout import KeepFactors, dropped_share, fast_dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_survivors_are_scaled_and_the_gradient_has_their_mask(dtype):
    torch.manual_seed(0)
    x = (torch.rand(64, 33, dtype=torch.float64) + 1).to(dtype).requires_grad_()
    found = fast_dropout(x, 0.3)
    scale = 1 / (1 - dropped_share(0.3))
    kept = found != 0
    assert 0.6 < float(kept.float().mean()) < 0.8
    torch.testing.assert_close(found[kept].double(), (x.double() * scale)[kept], rtol=1e-2, atol=0)
    found.backward(torch.ones_like(found))
    assert x.grad.dtype == dtype
    torch.testing.assert_close(x.grad.double(), kept.double() * scale, rtol=1e-2, atol=0)


def test_nothing_is_dropped_in_evaluation_or_at_0():
    x = torch.randn(5)
    assert fast_dropout(x, 0.5, training=False) is x
    assert fast_dropout(x, 0.0) is x
    assert torch.equal(fast_dropout(x, 1.0), torch.zeros(5))


def test_the_same_generator_state_gives_the_same_mask():
    x = torch.ones(1000)
    state = torch.get_rng_state()
    first = fast_dropout(x, 0.5)
    assert not torch.equal(fast_dropout(x, 0.5), first)
    torch.set_rng_state(state)
    assert torch.equal(fast_dropout(x, 0.5), first)


def test_gradient_in_float64():
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)

    def dropped(values):
        torch.manual_seed(2)
        return fast_dropout(values, 0.4)

    assert torch.autograd.gradcheck(dropped, (x,))
    assert torch.autograd.gradgradcheck(dropped, (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_second_derivatives_pass_through_the_mask(dtype):
    x = torch.randn(300, dtype=dtype, requires_grad=True)
    torch.manual_seed(2)
    (first,) = torch.autograd.grad((fast_dropout(x, 0.4) ** 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    scale = 1 / (1 - dropped_share(0.4))
    torch.testing.assert_close(second.float(), (first != 0).float() * 2 * scale**2, rtol=2e-2, atol=0)


@pytest.mark.parametrize("p", [0.0, 2**-16, 0.1, 0.5, 0.9, 1.0])
def test_factors_are_0_with_their_probability(p):
    count = 1_000_000
    factors = KeepFactors(p, seed=3).fill(torch.empty(count))
    assert set(factors.unique().tolist()) <= {0.0, 1.0}
    dropped = count - float(factors.sum(dtype=torch.float64))
    deviation = (count * p * (1 - p)) ** 0.5
    assert abs(dropped - count * dropped_share(p)) <= 5 * deviation
    assert abs(dropped_share(p) - p) <= 2**-17


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(), (1,), (7, 3), (2, 0)])
def test_any_shape_and_format_has_the_same_stream(dtype, shape):
    expected = KeepFactors(0.4, 9).fill(torch.empty(shape))
    found = KeepFactors(0.4, 9).fill(torch.full(shape, float("nan"), dtype=dtype))
    assert torch.equal(found.float(), expected)


def test_parts_and_seeds_are_streams_of_their_own():
    streams = [KeepFactors(0.5, seed, part).fill(torch.empty(4096)) for seed in (1, 2) for part in (0, 1)]
    for index, stream in enumerate(streams):
        for other in streams[:index]:
            assert 0.4 < float((stream == other).float().mean()) < 0.6


def test_neighbours_are_independent():
    factors = KeepFactors(0.5, 5).fill(torch.empty(400_000)) - 0.5
    for lag in (1, 2, 3, 4, 8):
        # The correlation of independent signs has a deviation of 1/√n.
        assert abs(float((factors[:-lag] * factors[lag:]).mean() * 4)) < 5 / 400_000**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_with_gaps_have_the_same_mask(dtype):
    x = torch.ones(40, 60, dtype=dtype, requires_grad=True)
    torch.manual_seed(1)
    found = fast_dropout(x, 0.5)
    (gradient,) = torch.autograd.grad(found, x, torch.ones(60, 40, dtype=dtype).t())
    assert torch.equal(gradient, found)
