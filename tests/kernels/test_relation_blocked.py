"""The blocked backend is the reference, faster: values and gradients for every mask, length and block size."""

import pytest
import torch

from limbeck.errors import KernelError
from limbeck.kernels import relation_kl_blocked, relation_kl_reference
from tests.kernels.relation_cases import HEADS, STUDENT, TEACHER, draw, poison, value_and_gradient
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


def test_only_the_asked_gradient():
    student_a, student_b, *teacher = draw(1, 2, 6)
    _, both = value_and_gradient(relation_kl_reference, (student_a, student_b, *teacher))
    for position in (0, 1):
        student = [student_a.clone(), student_b.clone()]
        student[position].requires_grad_()
        relation_kl_blocked(*student, *teacher, HEADS).backward()
        torch.testing.assert_close(student[position].grad, both[position])
        assert student[1 - position].grad is None


def test_without_gradient_nothing_is_kept():
    tensors = draw(1, 2, 6)
    expected = relation_kl_reference(*tensors, HEADS)
    assert not relation_kl_blocked(*tensors, HEADS).requires_grad
    with torch.no_grad():
        value = relation_kl_blocked(tensors[0].clone().requires_grad_(), *tensors[1:], HEADS)
    assert not value.requires_grad
    torch.testing.assert_close(value, expected)


def test_second_derivative_is_refused():
    student_a, *rest = draw(1, 1, 4)
    student_a = student_a.clone().requires_grad_()
    with pytest.raises(KernelError, match="has no second derivative"):
        torch.autograd.grad(relation_kl_blocked(student_a, *rest, HEADS), student_a, create_graph=True)


@pytest.mark.parametrize("on_host", [True, False])
def test_exactly_zero_at_equality(on_host):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        _, _, teacher_a, teacher_b = draw(1, 4, 10, dtype=dtype)
        value, gradients = value_and_gradient(
            relation_kl_blocked, (teacher_a, teacher_b) * 2, make_mask("gaps", 10), on_host=on_host
        )
        assert value == 0
        assert all(gradient.abs().max() < 1e-6 for gradient in gradients)


def test_empty_batches():
    for batch, length in ((0, 5), (3, 0)):
        shape = (batch, length)
        student = torch.zeros(*shape, STUDENT, requires_grad=True)
        value = relation_kl_blocked(student, student, *[torch.zeros(*shape, TEACHER)] * 2, HEADS)
        value.backward()
        assert value == 0
        assert student.grad.shape == student.shape
