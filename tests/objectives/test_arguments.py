"""Wrong arguments: one line that names the value, the rule and the way out."""

import pytest
import torch

from limbeck import objectives
from limbeck.errors import KernelError

X = torch.randn(2, 5, 12)
WIDE = torch.randn(2, 5, 24)
ROWS = torch.randn(4, 6)
MASK = torch.ones(2, 5, dtype=torch.bool)

MISTAKES = [
    ("heads 5 does not divide the student width 12", lambda: relation(X, WIDE, heads=5)),
    ("heads 8 does not divide the student width 12", lambda: relation(X, WIDE, heads=8)),
    ("heads 6 does not divide the teacher width 16", lambda: relation(X, torch.randn(2, 5, 16), heads=6)),
    ("heads is 0; it has to be a whole number", lambda: relation(X, X, heads=0)),
    ("heads is 2.0; it has to be a whole number", lambda: relation(X, X, heads=2.0)),
    ("heads is True", lambda: relation(X, X, heads=True)),
    (r"student_a is 12 wide and student_b 24; a relation needs equal widths", lambda: unequal(X, WIDE)),
    (r"student_q is 12 wide and student_k 24", lambda: objectives.attention_score_mse(X, WIDE, X, X, heads=2)),
    (r"student_a has shape \[4, 6\]; it has to be \[B, L, width\]", lambda: relation(ROWS, ROWS)),
    (r"teacher_a has shape \[2, 4, 24\] and student_a \[2, 5, 12\]", lambda: relation(X, WIDE[:, :4])),
    ("student_a is int64; it has to be floating point", lambda: relation(X.long(), X)),
    (r"valid has shape \[2, 4\]; it has to be \[2, 5\]", lambda: relation(X, X, valid=MASK[:, :4])),
    ("valid is float32; it has to be bool", lambda: relation(X, X, valid=MASK.float())),
    ("valid is on meta and the vectors on cpu", lambda: relation(X, X, valid=MASK.to("meta"))),
    ("teacher_a is on meta and student_a on cpu", lambda: relation(X, X.to("meta"))),
    ("Unknown backend 'fast' for relation_kl", lambda: relation(X, X, backend="fast")),
    ("backend 'triton' has no float64", lambda: relation(X.double(), X, backend="triton")),
    ("student's width 12 differs from the teacher's 24; give a projection", lambda: objectives.hidden_mse(X, WIDE)),
    ("student's width 12 differs from the teacher's 24", lambda: objectives.hidden_cosine(X, WIDE)),
    ("student's width 12 differs from the teacher's 24", lambda: objectives.patient_mse(X[0], WIDE[0])),
    (r"projection has shape \[24, 12\]; it has to be \[12, 24\]", lambda: mapped(torch.randn(24, 12))),
    (r"projection gives shape \[2, 5, 12\]; its last axis has to be 24", lambda: mapped(lambda x: x)),
    ("head sizes differ, student 6 and teacher 12", lambda: objectives.direct_mse(X, WIDE, heads=2)),
    (r"projections has shape \[6, 12\]; it has to be \[2, 6, 12\]", lambda: direct(torch.randn(6, 12))),
    ("temperature is 0; it has to be above 0", lambda: objectives.soft_label_kl(X, X, temperature=0)),
    ("temperature is nan", lambda: objectives.soft_label_kl(X, X, temperature=float("nan"))),
    ("temperature is -1", lambda: contrastive(torch.zeros(4).long(), temperature=-1)),
    (r"their first 3 axes have to be equal", lambda: objectives.soft_label_kl(X, WIDE)),
    (r"student_logits has shape \[\]", lambda: objectives.soft_label_kl(X[0, 0, 0], X[0, 0, 0])),
    (r"labels has shape \[3\]; it has to be \[4\]", lambda: contrastive(torch.zeros(3).long())),
    ("labels is float32; it has to hold whole numbers", lambda: contrastive(torch.zeros(4))),
    (r"label 12 is not in 0 … 11, nor -100", lambda: objectives.masked_lm_ce(X, torch.full((2, 5), 12))),
    (r"label -1 is not in 0 … 11, nor -100", lambda: objectives.masked_lm_ce(X, torch.full((2, 5), -1))),
    (r"student has shape \[2, 5, 12\]; it has to be \[B, width\]", lambda: objectives.pooled_cosine(X, X)),
    (r"first 1 axes have to be equal", lambda: objectives.sample_relation_kl(ROWS, ROWS[:3])),
]


def relation(student, teacher, heads=2, **options):
    return objectives.relation_kl(student, student, teacher, teacher, heads=heads, **options)


def unequal(a, b):
    return objectives.relation_kl(a, b, a, a, heads=2)


def mapped(projection):
    return objectives.hidden_mse(X, WIDE, projection=projection)


def direct(projections):
    return objectives.direct_mse(X, WIDE, heads=2, projections=projections)


def contrastive(labels, temperature=1.0):
    return objectives.sample_contrastive(ROWS, ROWS, labels, temperature=temperature)


@pytest.mark.parametrize(("message", "call"), MISTAKES, ids=[m for m, _ in MISTAKES])
def test_is_refused(message, call):
    with pytest.raises(KernelError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_masks_of_whole_numbers_are_taken():
    """A tokenizer's attention mask is int64."""
    valid = torch.rand(2, 5) < 0.5
    expected = relation(X, WIDE, valid=valid)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        term = relation(X, WIDE, valid=valid.to(dtype))
        assert (term.total, term.count) == (expected.total, expected.count)


def test_objectives_leave_their_arguments_alone():
    tensors = [torch.randn(2, 5, 12) for _ in range(4)]
    before = [x.clone() for x in tensors]
    tensors[0].requires_grad_()
    valid = torch.rand(2, 5) < 0.5
    objectives.relation_kl(*tensors, heads=2, valid=valid).total.backward()
    objectives.attention_score_mse(*tensors, heads=2, valid=valid).total.backward()
    assert all(torch.equal(x, y) for x, y in zip(tensors, before, strict=True))
