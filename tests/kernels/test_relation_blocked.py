"""The blocked backend is the reference, faster: values and gradients for every mask, length and block size."""

import importlib.util

import pytest
import torch

from limbeck.errors import KernelError
from limbeck.kernels import relation_kl_blocked, relation_kl_reference, relation_kl_triton
from limbeck.kernels.relation_triton import interpreting
from tests.kernels.relation_cases import HEADS, draw, poison, value_and_gradient
from tests.support.masks import NAMES, make_mask

LENGTHS = (1, 7, 10, 128, 401)


def same(given, expected, tolerance):
    (value, gradients), (wanted, wanted_gradients) = given, expected
    assert value.dtype == wanted.dtype
    torch.testing.assert_close(value, wanted, rtol=tolerance, atol=tolerance)
    for gradient, wanted_gradient in zip(gradients, wanted_gradients, strict=True):
        torch.testing.assert_close(gradient, wanted_gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("on_host", [True, False], ids=["packed", "masked"])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", LENGTHS)
def test_equals_reference_in_float64(length, name, symmetric, on_host):
    """Both with NaN at padding: it must not reach the loss, and the gradient there is exactly 0."""
    mask = make_mask(name, length)
    tensors = poison(draw(length, 4, length, symmetric=symmetric), mask)
    for causal in (False, True) if length < 100 else (False,):
        expected = value_and_gradient(relation_kl_reference, tensors, mask, causal, upstream=-1.7)
        given = value_and_gradient(relation_kl_blocked, tensors, mask, causal, upstream=-1.7, on_host=on_host)
        same(given, expected, 1e-10)
        for gradient in (*given[1], *expected[1]):
            assert mask is None or not gradient[~mask].any()


@pytest.mark.parametrize("on_host", [True, False], ids=["packed", "masked"])
@pytest.mark.parametrize("block", [1, 13, 60, 250, 1000])
@pytest.mark.parametrize("causal", [False, True])
def test_block_size_does_not_matter(block, causal, on_host):
    mask = make_mask("gaps", 10)
    for symmetric in (True, False):
        tensors = draw(3, 4, 10, symmetric=symmetric)
        given = value_and_gradient(relation_kl_blocked, tensors, mask, causal, block=block, on_host=on_host)
        same(given, value_and_gradient(relation_kl_reference, tensors, mask, causal), 1e-10)


@pytest.mark.parametrize("symmetric", [True, False])
def test_equals_reference_in_float32(symmetric):
    for length in LENGTHS:
        tensors, mask = draw(5, 4, length, symmetric=symmetric, dtype=torch.float32), make_mask("right", length)
        same(
            value_and_gradient(relation_kl_blocked, tensors, mask),
            value_and_gradient(relation_kl_reference, tensors, mask),
            2e-5,
        )


def test_large_logits_stay_finite():
    """Logits of some thousands, where exp would leave float32 without the row's greatest taken off."""
    for on_host in (True, False):
        tensors, mask = draw(5, 4, 10, dtype=torch.float32, scale=60.0), make_mask("gaps", 10)
        given = value_and_gradient(relation_kl_blocked, tensors, mask, on_host=on_host)
        same(given, value_and_gradient(relation_kl_reference, tensors, mask), 2e-4)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck(symmetric, causal):
    mask = torch.tensor([[True, True, False, True], [False, True, True, False]])
    student_a, student_b, *teacher = draw(1, 2, 4, symmetric=symmetric)

    def loss(a, b=None):
        return relation_kl_blocked(a, a if b is None else b, *teacher, HEADS, mask, causal, block=7)

    inputs = [student_a] if symmetric else [student_a, student_b]
    assert torch.autograd.gradcheck(loss, [x.clone().requires_grad_() for x in inputs])


@pytest.mark.parametrize("on_host", [True, False])
def test_exactly_zero_at_equality(on_host):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        _, _, teacher_a, teacher_b = draw(1, 4, 10, dtype=dtype)
        value, gradients = value_and_gradient(
            relation_kl_blocked, (teacher_a, teacher_b) * 2, make_mask("gaps", 10), on_host=on_host
        )
        assert value == 0
        assert all(gradient.abs().max() < 1e-6 for gradient in gradients)


needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
every_fast_backend = pytest.mark.parametrize(
    "backend", [relation_kl_blocked, pytest.param(relation_kl_triton, marks=needs_triton)]
)


def draw_here(backend, *arguments):
    """Streams in float32, on the GPU where Triton has one."""
    device = "cuda" if backend is relation_kl_triton and not interpreting() and torch.cuda.is_available() else "cpu"
    return [x.to(device) for x in draw(*arguments, dtype=torch.float32)]


@every_fast_backend
def test_only_the_asked_gradient(backend):
    student_a, student_b, *teacher = draw_here(backend, 1, 2, 6)
    _, both = value_and_gradient(relation_kl_reference, (student_a, student_b, *teacher))
    for position in (0, 1):
        student = [student_a.clone(), student_b.clone()]
        student[position].requires_grad_()
        teachers = [x.clone().requires_grad_() for x in teacher]
        backend(*student, *teachers, HEADS).backward()
        torch.testing.assert_close(student[position].grad, both[position], rtol=1e-4, atol=1e-5)
        assert student[1 - position].grad is None
        assert [x.grad for x in teachers] == [None, None]


@every_fast_backend
def test_without_gradient_nothing_is_kept(backend):
    tensors = draw_here(backend, 1, 2, 6)
    expected = relation_kl_reference(*tensors, HEADS)
    assert not backend(*tensors, HEADS).requires_grad
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            value = backend(*[x.clone() for x in tensors], HEADS)
            torch.testing.assert_close(value, expected)
    with torch.no_grad():
        assert not backend(tensors[0].clone().requires_grad_(), *tensors[1:], HEADS).requires_grad


@every_fast_backend
def test_second_derivative_is_refused(backend):
    student_a, *rest = draw_here(backend, 1, 1, 4)
    student_a = student_a.clone().requires_grad_()
    with pytest.raises(KernelError, match=r"'(blocked|triton)' has no second derivative"):
        torch.autograd.grad(backend(student_a, *rest, HEADS), student_a, create_graph=True)


@every_fast_backend
def test_empty_batches(backend):
    for batch, length in ((0, 5), (3, 0)):
        tensors = [x.requires_grad_() for x in draw_here(backend, 1, batch, length)]
        mask = torch.ones(batch, length, dtype=torch.bool, device=tensors[0].device)
        for valid in (None, mask):
            value = backend(*tensors, HEADS, valid)
            value.backward()
            assert value == 0
            assert tensors[1].grad.shape == tensors[1].shape
