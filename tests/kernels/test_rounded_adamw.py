"""Moments in bfloat16 are right on average, never stand still, and are the same to the bit wherever they come from."""

import io
import math
import os
import shutil
from pathlib import Path

import pytest
import torch

from limbeck.kernels import rounded_adamw as module
from limbeck.kernels.rounded_adamw import MOMENTS, RoundedAdamW, kernel, random_keys

OPTIONS = {"lr": 3e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
#: Standard errors that a mean of random bits may be off by.
SIGMAS = 5.0


@pytest.fixture(params=["compiled", "pytorch"])
def backend(request, monkeypatch):
    use(request.param, monkeypatch)
    return request.param


def use(backend, monkeypatch):
    if backend == "pytorch":
        monkeypatch.setattr(module, "kernel", lambda: "no compiler")
    else:
        if shutil.which(os.environ.get("CC") or "cc") is None or not Path("/proc/cpuinfo").is_file():
            pytest.skip("no C compiler, or another system than Linux")
        monkeypatch.setattr(module, "kernel", kernel)
        assert not isinstance(kernel(), str)


def made_weights(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def give_gradients(weights, step):
    generator = torch.Generator().manual_seed(1000 + step)
    for weight in weights:
        scales = torch.randn(weight.shape, generator=generator).mul(3).exp() * 1e-3
        weight.grad = torch.randn(weight.shape, generator=generator) * scales


def trained(weights, optimizer, steps, first=0):
    for step in range(first, first + steps):
        give_gradients(weights, step)
        optimizer.step()
    return [weight.detach().clone() for weight in weights]


def naive_step(weight, gradient, first, second, step, *, lr, betas, eps, weight_decay):
    """AdamW in float64, as its paper has it (algorithm 2)."""
    first = betas[0] * first + (1 - betas[0]) * gradient
    second = betas[1] * second + (1 - betas[1]) * gradient**2
    corrected = first / (1 - betas[0] ** step), second / (1 - betas[1] ** step)
    moved = weight - lr * (corrected[0] / (corrected[1].sqrt() + eps) + weight_decay * weight)
    return moved, first, second


def digit(value):
    """The distance of the neighbours that bfloat16 has around a number."""
    return torch.exp2(torch.floor(torch.log2(value.abs().clamp(min=2.0**-126))) - 7)


def test_every_step_is_that_of_float64_but_for_the_rounding_of_what_it_stores(backend):
    (weight,) = weights = made_weights((37, 29))
    optimizer = RoundedAdamW(weights, **OPTIONS)
    for step in range(1, 30):
        give_gradients(weights, step)
        state = optimizer.state[weight]
        before = [state.get(name, torch.zeros_like(weight)).double() for name in MOMENTS]
        wanted, *moments = naive_step(weight.detach().double(), weight.grad.double(), *before, step, **OPTIONS)
        optimizer.step()
        length = OPTIONS["lr"] * 10  # A step is at most so long.
        assert (weight - wanted).abs().max() <= 2**-23 * (weight.abs().max() + 10 * length)
        for name, exact, old in zip(MOMENTS, moments, before, strict=True):
            found = optimizer.state[weight][name]
            assert found.dtype == torch.bfloat16
            # One of its neighbours; float32 computes the number itself with an error of its parts' last digits.
            error = 2**-22 * (exact.abs() + 2 * old.abs())
            assert ((found.double() - exact).abs() <= digit(exact) + error).all(), (name, step)


def stored(seed, value, gradient, count=20_000):
    """Both moments after a step from moments of a value, drawn so many times, with their exact values."""
    weight = torch.nn.Parameter(torch.zeros(count))
    weight.grad = torch.full_like(weight, gradient)
    optimizer = RoundedAdamW([weight], **OPTIONS, seed=seed)
    moments = {name: torch.full((count,), value, dtype=torch.bfloat16) for name in MOMENTS}
    optimizer.state[weight] = {"step": torch.tensor(float(seed % 7)), **moments}
    optimizer.step()
    start = moments["exp_avg"].new_tensor(value).double()
    exact = [0.9 * start + 0.1 * gradient, 0.999 * start + 0.001 * gradient**2]
    return [optimizer.state[weight][name].double() for name in MOMENTS], exact


def assert_mean(found, exact):
    """A mean is that of independent draws; float32 computes each with an error of some last digits."""
    spread = max(float(found.std()), 2**-10 * abs(float(exact)) / math.sqrt(len(found)))
    assert abs(float(found.mean() - exact)) <= SIGMAS * spread / math.sqrt(len(found)) + 2**-22 * abs(float(exact))


@pytest.mark.parametrize(("value", "gradient"), [(1.0, 0.3), (0.7, -2.0), (3e-6, 1e-3), (1e-12, 0.0), (2e-39, 1e-20)])
def test_rounding_is_right_on_average(backend, value, gradient):
    for seed in range(5):
        for found, exact in zip(*stored(seed, value, gradient), strict=True):
            assert_mean(found, exact)
            assert len(found.unique()) <= 2
    sums = [sum(stored(seed, value, gradient, 64)[0][1]) / 64 for seed in range(300)]  # Over seeds and steps.
    assert_mean(torch.stack(sums), stored(0, value, gradient)[1][1])


def test_to_the_nearest_the_second_moment_would_stay(backend):
    """A thousand steps whose squares are half the moment: it comes to 0.68 of itself, or nowhere."""
    weight = torch.nn.Parameter(torch.zeros(4000))
    weight.grad = torch.full_like(weight, math.sqrt(0.5))
    optimizer = RoundedAdamW([weight], **OPTIONS)
    moments = {"exp_avg": weight.detach().bfloat16(), "exp_avg_sq": torch.ones(4000, dtype=torch.bfloat16)}
    optimizer.state[weight] = {"step": torch.tensor(0.0), **moments}
    nearest = torch.tensor(1.0, dtype=torch.bfloat16)
    for _ in range(1000):
        optimizer.step()
        nearest = (0.999 * nearest.float() + 0.001 * 0.5).bfloat16()
    assert nearest == 1.0
    assert_mean(moments["exp_avg_sq"].double(), torch.tensor(0.5 + 0.5 * 0.999**1000))


def test_bits_of_moments_places_steps_weights_and_seeds_have_nothing_in_common():
    count = 1 << 16

    def bits(seed=0, stream=0, step=1):
        start, key = random_keys(seed, stream, step)
        return module._mix((torch.arange(count) + start) & module._WORD, key)

    one = bits()
    others = [bits(seed=1), bits(seed=1 << 32), bits(stream=1), bits(step=2), bits(1, 1), one.roll(1), one.roll(1024)]
    halves = [half for word in [one, *others] for half in (word & 0xFFFF, word >> 16)]
    centred = torch.stack(halves).double() - (2**16 - 1) / 2
    level = centred.mean(1) / (2**16 / math.sqrt(12 * count))
    assert level.abs().max() < SIGMAS
    related = torch.corrcoef(centred) - torch.eye(len(halves))
    assert related.abs().max() < SIGMAS / math.sqrt(count)
    chi = torch.bincount(one >> 24, minlength=256).double().sub(count / 256).square().sum() / (count / 256)
    assert abs(float(chi) - 255) < SIGMAS * math.sqrt(2 * 255)


SHAPES = [(), (1,), (0,), (31,), (7, 100), (1000,), (3, 5, 2)]


@pytest.mark.usefixtures("two_threads")
def test_compiler_pieces_and_threads_change_no_bit(monkeypatch):
    found = []
    for backend, count in (("compiled", 1), ("compiled", 2), ("pytorch", 1), ("pytorch", 2)):
        with monkeypatch.context() as patch:
            use(backend, patch)
            patch.setattr(module, "PIECE", 100)
            patch.setattr(module, "COMPILED_PIECE", 300)
            torch.set_num_threads(count)
            weights = made_weights(*SHAPES)
            weights.append(torch.nn.Parameter(made_weights((50, 40))[0].detach().T))
            optimizer = RoundedAdamW(weights, **OPTIONS, seed=5)
            trained(weights, optimizer, 12)
            found.append([*weights, *(state[name] for state in optimizer.state.values() for name in MOMENTS)])
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))


def test_a_resumed_run_has_equal_bits(backend):
    weights, others = (made_weights(*SHAPES) for _ in range(2))
    whole = trained(weights, RoundedAdamW(weights, **OPTIONS, seed=5), 9)
    first = RoundedAdamW(others, **OPTIONS, seed=5)
    trained(others, first, 4)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = RoundedAdamW(others, seed=6)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert {state[name].dtype for state in second.state.values() for name in MOMENTS} == {torch.bfloat16}
    assert all(torch.equal(x, y) for x, y in zip(trained(others, second, 5, first=4), whole, strict=True))


def test_the_trajectory_is_near_that_of_float32():
    found = []
    for kind in (torch.optim.AdamW, RoundedAdamW):
        weights = made_weights((60, 50))
        target = made_weights((60, 50), seed=9)[0].detach()
        optimizer = kind(weights, lr=1e-2, weight_decay=0.0)
        for step in range(300):
            noise = torch.randn(target.shape, generator=torch.Generator().manual_seed(step))
            weights[0].grad = weights[0].detach() - target + 0.3 * noise
            optimizer.step()
        found.append(float((weights[0] - target).detach().square().mean()))
    assert found[1] == pytest.approx(found[0], rel=0.03)
    assert found[0] < 0.1


def test_a_flag_leaves_everything_as_it_is(backend):
    weights = made_weights((40,), (3,))
    optimizer = RoundedAdamW(weights, **OPTIONS)
    for flag in (1.0, 0.0, 1.0):  # Also before there is a state.
        before = [weight.detach().clone() for weight in weights]
        states = [{name: x.clone() for name, x in optimizer.state[weight].items()} for weight in weights]
        give_gradients(weights, 0)
        optimizer.found_inf = torch.tensor(flag)
        optimizer.step()
        same = [torch.equal(weight, x) for weight, x in zip(weights, before, strict=True)]
        assert same == [bool(flag)] * 2
        if flag:
            for weight, state in zip(weights, states, strict=True):
                assert all(torch.equal(optimizer.state[weight][name], x) for name, x in state.items())


def test_on_a_device_no_number_is_asked_for():
    """The device holds no numbers: asking it for one is an error."""
    weight = torch.nn.Parameter(torch.empty(5, 4, device="meta"))
    optimizer = RoundedAdamW([weight], **OPTIONS)
    for flag in (None, torch.empty((), device="meta")):
        optimizer.found_inf = flag
        weight.grad = torch.empty_like(weight)
        optimizer.step()
    assert {x.device.type for x in optimizer.state[weight].values()} == {"meta"}


@pytest.mark.parametrize("bad", [None, False, True])
def test_what_a_device_counts_itself_is_the_same(bad):
    """Steps, corrections and keys as scalars of PyTorch, and a flag that only the device knows."""
    for step in (1, 7, 4000):
        operands = [[x.clone() for x in (row.sin(), row.cos(), row.sin().bfloat16(), row.square().bfloat16())]
                    for row in [torch.arange(100.0)] * 2]  # fmt: skip
        before = [x.clone() for x in operands[1]]
        numbers = (step, random_keys(3, 2, step))
        scalars = (torch.tensor(float(step)), random_keys(3, 2, torch.tensor(step)))
        for own, (count, keys), flag in zip(operands, (numbers, scalars), (None, bad), strict=True):
            settings = module._settings(*OPTIONS.values(), count, keys)
            judged = None if flag is None else torch.tensor(flag)
            module._compute_by_pytorch(settings, module._Operands(*own), 0, judged)
        wanted = before if bad else operands[0]
        torch.testing.assert_close(operands[1][0], wanted[0], rtol=1e-6, atol=1e-7)
        assert all(torch.equal(x, y) for x, y in zip(operands[1][2:], wanted[2:], strict=True))


def test_models_side_by_side_draw_what_each_draws_alone(backend):
    alone = made_weights((30, 4), (9,))
    wanted = trained(alone, RoundedAdamW(alone, **OPTIONS, seed=3), 4)
    first, second = (made_weights((30, 4), (9,)) for _ in range(2))
    # Decayed weights of both come first, as a trainer groups them.
    groups = [{"params": [first[0], second[0]]}, {"params": [first[1], second[1]]}]
    optimizer = RoundedAdamW(groups, **OPTIONS, seed=3)
    optimizer.number_weights([first, second])
    for step in range(4):
        give_gradients(first, step)
        give_gradients(second, step)
        optimizer.step()
    for own in (first, second):
        assert all(torch.equal(x, y) for x, y in zip(own, wanted, strict=True))


def test_nothing_is_drawn_from_pytorch(backend):
    weights = made_weights((40,))
    give_gradients(weights, 0)
    state = torch.get_rng_state()
    RoundedAdamW(weights).step()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_in_other_formats_are_refused(dtype):
    with pytest.raises(ValueError, match="weights in float32, not in torch"):
        RoundedAdamW([torch.nn.Parameter(torch.zeros(3, dtype=dtype))])
