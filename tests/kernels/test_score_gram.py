"""The linear form of the score distance against the scores themselves, far from and close to the teacher."""

import pytest
import torch

from limbeck.errors import KernelError
from limbeck.kernels.score_gram import score_distance
from tests.support.masks import NAMES, make_mask

HEADS = 2


def materialised(q, k, other_q, other_k, heads, valid=None):
    def scores(a, b):
        a, b = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (a, b))
        return a @ b.mT / a.shape[-1] ** 0.5

    difference = scores(q, k) - scores(other_q, other_k)
    if valid is not None:
        difference = difference.masked_fill(~(valid[:, None, :, None] & valid[:, None, None, :]), 0.0)
    return difference.square().sum()


def draw(near, seed=0, length=33, widths=(16, 16), dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def normal(width):
        return torch.randn(4, length, width, dtype=torch.float64, generator=generator)

    teacher = [normal(widths[1]), normal(widths[1])]
    if near == "far":
        student = [normal(widths[0]), normal(widths[0])]
    elif near == "turned":  # other queries and keys, nearly the same scores
        turn = torch.linalg.qr(normal(8)[0, :8])[0]
        student = [(x.unflatten(-1, (HEADS, -1)) @ turn).flatten(2) + 1e-3 * normal(widths[0]) for x in teacher]
    else:
        student = [x + near * normal(widths[0]) for x in teacher]
    return [x.to(dtype) for x in (*student, *teacher)]


def run(function, tensors, valid=None, upstream=1.0):
    student = [x.clone().requires_grad_() for x in tensors[:2]]
    value = function(*student, *tensors[2:], HEADS, valid)
    return value.detach(), torch.stack(torch.autograd.grad(value * upstream, student))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("widths", [(8, 16), (16, 8), (16, 16)])
def test_equals_materialised_in_float64(name, widths):
    mask = make_mask(name, 10)
    tensors = draw("far", length=10, widths=widths)
    expected = run(materialised, tensors, mask, upstream=-2.5)
    poisoned = tensors if mask is None else [x.masked_fill(~mask[..., None], float("nan")) for x in tensors]
    value, gradient = run(score_distance, poisoned, mask, upstream=-2.5)
    torch.testing.assert_close(value, expected[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, expected[1], rtol=1e-11, atol=1e-11)
    assert mask is None or not gradient[:, ~mask].any()


@pytest.mark.parametrize("near", ["far", "turned", 1e-1, 1e-3, 1e-5])
def test_close_to_the_teacher_in_float64(near):
    """The Gram identity keeps about 6 digits at 1e-5; streams in float64 do not take it."""
    tensors = draw(near)
    (value, gradient), (wanted, wanted_gradient) = run(score_distance, tensors), run(materialised, tensors)
    tolerance = 1e-9
    torch.testing.assert_close(value, wanted, rtol=tolerance, atol=0)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=0, atol=tolerance * wanted_gradient.abs().max().item())


@pytest.mark.parametrize("near", ["far", "turned", 1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("short", [0, 1000], ids=["identity", "scores"])
def test_error_is_at_most_twice_that_of_plain_pytorch(near, dtype, short, monkeypatch):
    monkeypatch.setattr("limbeck.kernels.score_gram.SHORT", short)
    found = []
    for seed in range(6):
        tensors = draw(near, seed, dtype=dtype)
        exact, exact_gradient = run(materialised, [x.double() for x in tensors])
        row = []
        for function in (score_distance, materialised):
            given = tensors if function is score_distance else [x.float() for x in tensors]
            value, gradient = run(function, given)
            row += [(value - exact).abs() / exact, (gradient.to(dtype) - exact_gradient).norm() / exact_gradient.norm()]
        found.append(row)
    own, own_gradient, plain, plain_gradient = torch.tensor(found, dtype=torch.float64).square().mean(0).sqrt()
    assert own <= 2 * plain + torch.finfo(torch.float32).eps
    assert own_gradient <= 2 * plain_gradient


def test_gradcheck_and_no_double_backward():
    q, k, *teacher = draw("far", length=3, widths=(4, 8))
    inputs = [x.clone().requires_grad_() for x in (q, k)]
    assert torch.autograd.gradcheck(lambda q, k: score_distance(q, k, *teacher, HEADS), inputs)
    with pytest.raises(KernelError, match="has no second derivative"):
        torch.autograd.grad(score_distance(*inputs, *teacher, HEADS), inputs, create_graph=True)


@pytest.mark.parametrize("short", [0, 1000], ids=["identity", "scores"])
@pytest.mark.parametrize("chunk", [1, 45, 1 << 18])
def test_neither_the_way_nor_its_chunks_matter(short, chunk, monkeypatch):
    """In float32, where both ways exist, with gaps and unequal head sizes."""
    tensors, mask = draw("far", length=10, widths=(8, 16)), make_mask("empty row", 10)
    expected = run(materialised, tensors, mask)
    monkeypatch.setattr("limbeck.kernels.score_gram.CHUNK", chunk)
    monkeypatch.setattr("limbeck.kernels.score_gram.SHORT", short)
    given = run(score_distance, [x.float() for x in tensors], mask)
    for own, wanted in zip(given, expected, strict=True):
        torch.testing.assert_close(own.double(), wanted, rtol=1e-5, atol=1e-4)


def test_one_tensor_as_query_and_key():
    """The comparative study's eq. 11 compares A Aᵀ."""
    student, _, teacher, _ = draw("far")
    x, y = student.clone().requires_grad_(), student.clone().requires_grad_()
    score_distance(x, x, teacher, teacher, HEADS).backward()
    materialised(y, y, teacher, teacher, HEADS).backward()
    torch.testing.assert_close(x.grad, y.grad)
