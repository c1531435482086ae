"""Corners of single objectives that the formulas leave open."""

import pytest
import torch
from torch.testing import assert_close

from limbeck import objectives
from limbeck.objectives import OBJECTIVES
from tests.support.tensors import EPS, errors


def test_a_class_that_the_teacher_excludes():
    """−inf in its logits takes a class out of the divergence, whatever the student's is."""
    teacher = torch.tensor([[1.0, float("-inf"), 0.5]])
    student = torch.tensor([[0.2, 0.3, 0.1]], requires_grad=True)
    total = objectives.soft_label_kl(student, teacher).total
    total.backward()
    assert total.isfinite()
    assert student.grad.isfinite().all()


def test_zero_vectors_have_distance_one():
    zero, x = torch.zeros(1, 3, requires_grad=True), torch.randn(1, 3)
    for student, teacher in ((zero, x), (x, zero.detach()), (zero, zero.detach())):
        assert_close(objectives.pooled_cosine(student, teacher).total, torch.tensor(1.0))
    objectives.pooled_cosine(zero, x).total.backward()
    assert zero.grad.isfinite().all()


def test_equal_vectors_have_no_gradient():
    x = torch.randn(2, 3)
    for prefix in (None, 2):
        student = x.clone().requires_grad_()
        objectives.pooled_distance(student, x, prefix=prefix).total.backward()
        assert not student.grad.any()


def test_cosine_keeps_its_digits_near_the_teacher():
    teacher = torch.randn(100, 64, dtype=torch.float64)
    student = teacher + 1e-4 * torch.randn_like(teacher)
    exact = (1 - torch.cosine_similarity(student, teacher)).sum()
    given = objectives.pooled_cosine(student.float(), teacher.float()).total.double()
    assert abs(given - exact) / exact < 1e-2
    plain = (1 - torch.cosine_similarity(student.float(), teacher.float())).sum().double()
    assert abs(given - exact) < abs(plain - exact)


def pairs_of_margins(student, teacher):
    """`margin_mse` of queries `[queries, documents]` as printed, each pair by itself."""
    margins = [scores[:, :, None] - scores[:, None, :] for scores in (student, teacher)]
    pairs = torch.ones(student.shape[1], student.shape[1], dtype=torch.bool).triu(1)
    return (margins[0] - margins[1])[:, pairs].square().mean(1).sum()


def divergence_of_lists(student, teacher):
    """`listwise_kl` of queries `[queries, documents]` by PyTorch's softmax."""
    student_log, teacher_log = student.log_softmax(1), teacher.log_softmax(1)
    return (teacher_log.exp() * (teacher_log - student_log)).sum()


@pytest.mark.parametrize("near", [1.0, 1e-2])
@pytest.mark.parametrize("shift", [0.0, 10.0, 1e3, 1e5])
@pytest.mark.parametrize(
    ("name", "plain"),
    [("margin_mse", pairs_of_margins), ("listwise_kl", divergence_of_lists)],
    ids=["margin_mse", "listwise_kl"],
)
def test_scores_that_are_higher_as_a_whole_cost_no_digits(name, plain, shift, near):
    """Both losses leave a student free to shift the scores of a query, so neither may round them at their size."""
    queries, documents = 3, 5
    groups = torch.arange(queries).repeat_interleave(documents)
    objective = OBJECTIVES[name].function
    found = []
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        teacher = torch.randn(queries, documents, generator=generator)
        noise = torch.randn(queries, documents, generator=generator)
        # Documents of a query need not follow each other.
        order = torch.randperm(len(groups), generator=generator)
        student = teacher + near * noise + shift * torch.arange(1, queries + 1)[:, None]

        def shuffled(student, teacher, order=order):
            rows = [scores.flatten()[order, None] for scores in (student, teacher)]
            return objective(*rows, groups=groups[order]).total

        ways = []
        for function, dtype in ((shuffled, torch.float32), (plain, torch.float32), (plain, torch.float64)):
            scores = student.to(dtype).requires_grad_()
            value = function(scores, teacher.to(dtype))
            ways.append((value.detach(), *torch.autograd.grad(value, scores)))
        found.append(ways)
    own, usual, exact = zip(*found, strict=True)
    assert (errors(own, exact) <= 2 * errors(usual, exact) + 2 * EPS).all()


def test_modules_are_called_in_their_own_dtype():
    """Pure-bfloat16 learned maps, and float32 maps under bfloat16 streams."""
    for dtype in (torch.bfloat16, torch.float32):
        linear = torch.nn.Linear(4, 6, dtype=dtype)
        student, teacher = torch.randn(2, 3, 4, dtype=torch.bfloat16), torch.randn(2, 3, 6, dtype=torch.bfloat16)
        term = objectives.hidden_mse(student, teacher, projection=linear)
        assert term.total.dtype == torch.float32
        term.total.backward()
        assert linear.weight.grad.dtype == dtype


def test_masks_of_whole_numbers_are_taken():
    """A tokenizer's attention mask is int64; anything but 0 is valid."""
    x, valid = torch.randn(2, 5, 12), torch.rand(2, 5) < 0.5
    expected = objectives.hidden_mse(x, x.flip(0), valid=valid)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        term = objectives.hidden_mse(x, x.flip(0), valid=valid.to(dtype) * 3)
        assert (term.total, term.count) == (expected.total, expected.count)
