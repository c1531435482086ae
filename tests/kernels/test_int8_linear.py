"""Int8 products equal those of integers, and linear maps by them float64 arithmetic on the same codes."""

import pytest
import torch

from limbeck.kernels import int8_linear as module
from limbeck.kernels.int8_linear import LARGEST, int8_linear, int8_problem, multiply, pack, quantise
from limbeck.kernels.workers import run_tasks
from tests.support.int8 import naive_codes, naive_linear, on_vnni

SHAPES = [(1, 1, 1), (3, 7, 5), (33, 48, 96), (2, 1000, 17), (130, 64, 1)]


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_codes_are_those_of_float64(dtype):
    rows = (drawn(40, 96) * torch.logspace(-3, 3, 40)[:, None]).to(dtype)
    codes, scales = quantise(rows)
    wanted, exact = naive_codes(rows)
    assert codes.dtype == torch.int8 and codes.abs().amax(-1).eq(LARGEST).all()
    assert torch.equal(codes.double(), wanted)
    torch.testing.assert_close(scales.double(), exact, rtol=1e-7, atol=0)


def test_codes_of_ties_are_even_and_those_of_zeros_are_zero():
    codes, _ = quantise(torch.tensor([[127.0, 0.5, 1.5, -2.5], [0.0, 0.0, -0.0, 0.0]]))
    assert codes.tolist() == [[127, 0, 2, -2], [0, 0, 0, 0]]


def test_rows_are_left_as_they_are():
    rows = drawn(3, 8)
    before = rows.clone()
    quantise(rows)
    quantise(rows.T)
    assert torch.equal(rows, before)


@on_vnni
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_integers(shape):
    tokens, inputs, outputs = shape
    generator = torch.Generator().manual_seed(1)
    codes, weight = (
        torch.randint(-LARGEST, LARGEST + 1, (rows, inputs), generator=generator, dtype=torch.int8)
        for rows in (tokens, outputs)
    )
    codes[0], weight[0] = LARGEST, -LARGEST  # Sums of pairs that 16 bits cannot hold.
    found = multiply(codes, pack(weight, torch.ones(outputs, 1)))
    assert torch.equal(found.long(), codes.long() @ weight.long().T)


@on_vnni
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_maps_are_those_of_float64_on_the_codes(shape, dtype, has_bias):
    tokens, inputs, outputs = shape
    x, weight = drawn(2, tokens, inputs).to(dtype), drawn(outputs, inputs, seed=1).to(dtype)
    bias = drawn(outputs, seed=2) if has_bias else None
    found, wanted = int8_linear(x, pack(*quantise(weight)), bias), naive_linear(x, weight, bias)
    assert found.dtype == dtype and found.shape == (2, tokens, outputs)
    size = wanted.abs().amax(-1, keepdim=True) + (0 if bias is None else bias.abs().max())
    assert ((found.double() - wanted).abs() <= 4 * torch.finfo(dtype).eps * size).all()


@on_vnni
def test_a_transposed_batch_and_one_without_rows():
    weight, x = pack(*quantise(drawn(5, 6))), drawn(6, 4).T
    assert torch.equal(int8_linear(x, weight, None), int8_linear(x.contiguous(), weight, None))
    assert int8_linear(x[:0], weight, None).shape == (0, 5)


@on_vnni
def test_tokens_divided_among_threads_give_the_same_bits(two_threads, monkeypatch):
    weight, bias, x = pack(*quantise(drawn(5, 32))), drawn(5), drawn(2, 140, 32).bfloat16()
    alone = int8_linear(x, weight, bias)
    parts = []

    def note(tasks):
        parts.append(len(tasks))
        return run_tasks(tasks)

    monkeypatch.setattr(module, "run_tasks", note)
    # Set, not pretended: the threads of a pool that is made here keep the number they are told when they first ask.
    torch.set_num_threads(3)
    assert torch.equal(int8_linear(x, weight, bias), alone)
    assert int8_linear(x[:, :30], weight, bias).shape == (2, 30, 5)
    assert parts == [3, 1]


@on_vnni
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_stay_in_their_row(bad):
    x, weight = drawn(3, 16), pack(*quantise(drawn(4, 16, seed=1)))
    clean = int8_linear(x, weight, None)
    x[1, 2] = bad
    found = int8_linear(x, weight, None)
    assert torch.equal(found[::2], clean[::2]) and not found[1].isfinite().any()


@pytest.mark.parametrize(("name", "replacement", "problem"), [
    ("multiply", lambda codes, weight: torch.full((2, 2), 1 << 15), "are wrong here"),
    ("pack", lambda codes, scales: torch.ops.onednn.not_there(codes), "has no int8 products for this CPU"),
])  # fmt: skip
def test_products_that_are_wrong_or_missing_are_a_problem(monkeypatch, name, replacement, problem):
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True)
    monkeypatch.setattr(module, name, replacement)
    assert problem in int8_problem.__wrapped__()


def test_a_cpu_without_vnni_has_no_products(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    assert "this CPU has no int8 products" in int8_problem.__wrapped__()


@on_vnni
def test_a_cpu_with_vnni_has_products():
    assert int8_problem() is None
