"""`fast_dropout` is dropout: its survivors are scaled, its gradient has the same mask, and it leaves nothing behind."""

import pytest
import torch

from limbeck.kernels.dropout import dropped_share, fast_dropout


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


def test_the_mean_stays():
    torch.manual_seed(1)
    assert abs(float(fast_dropout(torch.ones(1_000_000), 0.1).mean()) - 1) < 5 * (0.1 / 0.9 / 1_000_000) ** 0.5


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
