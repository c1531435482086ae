"""The linear form of the score distance against the scores themselves, far from and close to the teacher."""

from contextlib import nullcontext

import pytest
import torch

from limbeck.kernels import score_distance
from limbeck.objectives import OBJECTIVES
from tests.support.masks import NAMES, make_mask
from tests.support.tensors import EPS, errors

HEADS = 2
FAR_AND_NEAR = ["far", "turned", 1e-1, 1e-3, 1e-5]
either_way = pytest.mark.parametrize("short", [0, 1000], ids=["identity", "scores"])


def materialised(*streams, valid=None):
    valid = torch.ones(streams[0].shape[:2], dtype=torch.bool) if valid is None else valid
    return (
        OBJECTIVES["attention_score_mse"].benchmark.backends["materialised"](*streams, heads=HEADS, valid=valid).total
    )


def by_kernel(*streams, valid=None):
    return score_distance(*streams, HEADS, valid)


def draw(near, seed=0, length=33, widths=(16, 16)):
    generator = torch.Generator().manual_seed(seed)

    def normal(width):
        return torch.randn(4, length, width, dtype=torch.float64, generator=generator)

    teacher = [normal(widths[1]), normal(widths[1])]
    if near == "far":
        return [normal(widths[0]), normal(widths[0]), *teacher]
    if near == "turned":  # other queries and keys, nearly the same scores
        turn = torch.linalg.qr(normal(8)[0, :8])[0]
        return [
            *((x.unflatten(-1, (HEADS, -1)) @ turn).flatten(2) + 1e-3 * normal(widths[0]) for x in teacher),
            *teacher,
        ]
    return [*(x + near * normal(widths[0]) for x in teacher), *teacher]


def run(function, tensors, valid=None, upstream=1.0):
    student = [x.clone().requires_grad_() for x in tensors[:2]]
    value = function(*student, *tensors[2:], valid=valid)
    return value.detach(), torch.stack(torch.autograd.grad(value * upstream, student))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk", [1, 45, 1 << 18])
@either_way
def test_neither_the_way_nor_its_chunks_matter(short, chunk, name, monkeypatch):
    """In float32, where both ways exist, with NaN at padding and unequal head sizes; in float64 to the last digits."""
    monkeypatch.setattr("limbeck.kernels.score_gram.CHUNK", chunk)
    monkeypatch.setattr("limbeck.kernels.score_gram.SHORT", short)
    mask = make_mask(name, 10)
    for widths in ((8, 16), (16, 8)):
        tensors = draw("far", length=10, widths=widths)
        wanted = run(materialised, tensors, mask, upstream=-2.5)
        given = tensors if mask is None else [x.masked_fill(~mask[..., None], float("nan")) for x in tensors]
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-11)):
            found = run(by_kernel, [x.to(dtype) for x in given], mask, upstream=-2.5)
            torch.testing.assert_close([x.double() for x in found], [*wanted], rtol=tolerance, atol=20 * tolerance)
            assert mask is None or not found[1][:, ~mask].any()


@either_way
def test_an_accelerator_computes_a_batch_at_once(short, monkeypatch):
    """Where a CPU takes chunks of it, which stay in cache."""
    monkeypatch.setattr("limbeck.kernels.score_gram.SHORT", short)
    monkeypatch.setattr("limbeck.kernels.score_gram.autocast_off", lambda device: nullcontext())  # None for "meta".
    made, numbers, bmm = [], [], torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda *given, **options: made.append(1) or bmm(*given, **options))
    for device in ("meta", "cpu"):
        made.clear()
        streams = [torch.zeros(64, 128, width, device=device) for width in (24, 24, 48, 48)]
        score_distance(*streams, heads=12)
        numbers.append(len(made))
    at_once, in_turns = numbers
    assert at_once <= 6
    assert in_turns >= 2 * at_once


@pytest.mark.parametrize("near", FAR_AND_NEAR)
def test_close_to_the_teacher_in_float64(near):
    """The Gram identity keeps about 6 digits at 1e-5; streams in float64 do not take it."""
    tensors = draw(near)
    (value, gradient), (wanted, wanted_gradient) = run(by_kernel, tensors), run(materialised, tensors)
    torch.testing.assert_close(value, wanted, rtol=1e-9, atol=0)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=0, atol=1e-9 * wanted_gradient.abs().max().item())


@pytest.mark.parametrize("near", FAR_AND_NEAR)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@either_way
def test_error_is_at_most_twice_that_of_plain_pytorch(near, dtype, short, monkeypatch):
    monkeypatch.setattr("limbeck.kernels.score_gram.SHORT", short)
    found = []
    for seed in range(6):
        tensors = [x.to(dtype) for x in draw(near, seed)]
        plain, plain_gradient = run(materialised, [x.float() for x in tensors])
        exact = run(materialised, [x.double() for x in tensors])
        found.append((run(by_kernel, tensors), (plain, plain_gradient.to(dtype)), exact))
    own, plain, exact = zip(*found, strict=True)
    assert (errors(own, exact) <= 2 * errors(plain, exact) + torch.tensor([EPS, 0.0])).all()


def with_common_offset(near, seed):
    """Streams whose scores are thousands, as those of transformers with a few outlier coordinates are."""
    offset = 60.0 * (torch.arange(16) % 8 < 2)
    return [(x + offset).float() for x in draw(near, seed)]


@pytest.mark.parametrize("near", ["far", 1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("double", [True, False], ids=["float64", "no float64"])
@either_way
def test_large_scores_cost_no_more_than_in_plain_pytorch(near, double, short, monkeypatch):
    """The identity subtracts numbers of their squares, for which a device without float64 has no digits."""
    monkeypatch.setattr("limbeck.kernels.score_gram.SHORT", short)
    monkeypatch.setattr("limbeck.kernels.score_gram.has_float64", lambda device: double)
    found = []
    for seed in range(6):
        tensors = with_common_offset(near, seed)
        exact = run(materialised, [x.double() for x in tensors])
        found.append((run(by_kernel, tensors), run(materialised, tensors), exact))
    own, plain, exact = zip(*found, strict=True)
    assert (errors(own, exact) <= 2 * errors(plain, exact) + torch.tensor([EPS, 0.0])).all()


def test_one_tensor_as_query_and_key():
    """The comparative study's eq. 11 compares A Aᵀ."""
    student, _, teacher, _ = draw("far")
    x = student.requires_grad_()
    pairs = x, x, teacher, teacher
    torch.testing.assert_close(*(torch.autograd.grad(f(*pairs), x) for f in (by_kernel, materialised)))
