"""Keep factors: the right share of zeros, exactly 0 or 1, reproducible, and a stream that can be started again."""

import pytest
import torch

from limbeck.kernels.dropout import KeepFactors, draw_seed, dropped_share


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


def test_seeds_follow_the_default_generator():
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first = draw_seed()
    assert draw_seed() != first
    torch.set_rng_state(state)
    assert draw_seed() == first
