"""Corners of single objectives that the formulas leave open."""

import torch
from torch.testing import assert_close

from limbeck import objectives
from limbeck.objectives import LossTerm


def test_terms_add_and_divide():
    whole = LossTerm(torch.tensor(3.0), torch.tensor(2.0)) + LossTerm(torch.tensor(1.0), torch.tensor(6.0))
    assert whole.mean == 0.5
    assert LossTerm(torch.tensor(0.0), torch.tensor(0.0)).mean == 0


def test_relation_reads_heads_as_split_of_the_whole_width():
    """48 relation heads over 12 attention heads: the concatenated vector is cut anew, and √d_r is the new size."""
    q, k = torch.randn(1, 4, 24, dtype=torch.float64), torch.randn(1, 4, 24, dtype=torch.float64)
    whole = objectives.relation_kl(q, k, k, q, heads=12)
    parts = [objectives.relation_kl(*(x[..., i : i + 2] for x in (q, k, k, q)), heads=1).total for i in range(0, 24, 2)]
    assert_close(whole.total, sum(parts))
    assert whole.count == 48


def test_direction_of_the_divergence():
    """KL(teacher ‖ student): a student that rules out what the teacher holds possible pays more than the reverse."""
    flat, sharp = torch.zeros(1, 2), torch.tensor([[8.0, 0.0]])
    assert objectives.soft_label_kl(sharp, flat).total > 2
    assert objectives.soft_label_kl(flat, sharp).total < 1


def test_excluded_classes():
    """−inf in a teacher's logits takes a class out; in both models' it has no gradient either."""
    teacher = torch.tensor([[1.0, float("-inf"), 0.5]])
    for excluded in (0.3, float("-inf")):
        student = torch.tensor([[0.2, excluded, 0.1]], requires_grad=True)
        total = objectives.soft_label_kl(student, teacher).total
        total.backward()
        assert total.isfinite()
        assert student.grad.isfinite().all()


def test_zero_vectors_have_distance_one():
    zero, x = torch.zeros(1, 3, requires_grad=True), torch.randn(1, 3)
    assert_close(objectives.pooled_cosine(zero, x).total, torch.tensor(1.0))
    assert_close(objectives.pooled_cosine(x, zero.detach()).total, torch.tensor(1.0))
    assert_close(objectives.pooled_cosine(zero, zero.detach()).total, torch.tensor(1.0))
    objectives.pooled_cosine(zero, x).total.backward()
    assert zero.grad.isfinite().all()


def test_cosine_keeps_its_digits_near_the_teacher():
    teacher = torch.randn(100, 64, dtype=torch.float64)
    student = teacher + 1e-4 * torch.randn_like(teacher)
    exact = (1 - torch.cosine_similarity(student, teacher)).sum()
    given = objectives.pooled_cosine(student.float(), teacher.float()).total.double()
    assert abs(given - exact) / exact < 1e-2
    plain = (1 - torch.cosine_similarity(student.float(), teacher.float())).sum().double()
    assert abs(given - exact) < abs(plain - exact)


def test_modules_are_called_in_their_own_dtype():
    """Pure-bfloat16 learned maps, and float32 maps under bfloat16 streams."""
    for dtype in (torch.bfloat16, torch.float32):
        linear = torch.nn.Linear(4, 6, dtype=dtype)
        student, teacher = torch.randn(2, 3, 4, dtype=torch.bfloat16), torch.randn(2, 3, 6, dtype=torch.bfloat16)
        term = objectives.hidden_mse(student, teacher, projection=linear)
        assert term.total.dtype == torch.float32
        term.total.backward()
        assert linear.weight.grad.dtype == dtype


def test_contrastive_of_a_single_class_and_of_all_different():
    """P(i) is never empty: the other model's row of the same sample is in it."""
    rows = torch.nn.functional.normalize(torch.randn(3, 4), dim=-1)
    for labels in (torch.zeros(3, dtype=torch.long), torch.arange(3)):
        term = objectives.sample_contrastive(rows.clone().requires_grad_(), rows, labels)
        assert term.total.isfinite()
        assert term.count == 6


def test_value_vectors_are_hidden_states_to_hidden_mse():
    """MiniLM's ablation (its table 6) is `hidden_mse` on value vectors with a learned map."""
    student, teacher, matrix = torch.randn(2, 3, 4), torch.randn(2, 3, 6), torch.randn(4, 6)
    expected = torch.nn.functional.mse_loss(student @ matrix, teacher)
    assert_close(objectives.hidden_mse(student, teacher, projection=matrix).mean, expected)
