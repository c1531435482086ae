"""Soft labels from hidden vectors: against the equation written out, and against `soft_label_kl` of the logits."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from limbeck.errors import KernelError
from limbeck.objectives.labels import soft_label_kl, soft_label_kl_from_hidden
from limbeck.objectives.terms import LossTerm
from tests.objectives import reference
from tests.support.masks import NAMES, make_mask

BATCH, LENGTH, CLASSES, STUDENT, TEACHER = 4, 7, 9, 3, 5


def draw(seed=0, shape=(BATCH, LENGTH), bias=True, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes):
        return torch.randn(*sizes, dtype=torch.float64, generator=generator).to(dtype)

    heads = [[normal(*shape, w), normal(CLASSES, w), normal(CLASSES)] for w in (STUDENT, TEACHER)]
    return [head if bias else [*head[:2], None] for head in heads]


def term_of(student, teacher, **options):
    biases = {"student_bias": student[2], "teacher_bias": teacher[2]}
    return soft_label_kl_from_hidden(*student[:2], *teacher[:2], **biases, **options)


def plain(student, teacher, **options):
    return soft_label_kl(F.linear(*student), F.linear(*teacher), **options)


def gradients(function, student, teacher, upstream=1.0, **options):
    leaves = [None if x is None else x.clone().requires_grad_() for x in student]
    term = function(leaves, teacher, **options)
    return term, torch.autograd.grad(term.total * upstream, [x for x in leaves if x is not None])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("bias", [True, False])
def test_against_the_equation(name, temperature, bias):
    student, teacher = draw(bias=bias)
    mask = make_mask(name, LENGTH)
    term = term_of(student, teacher, temperature=temperature, valid=mask)
    logits = [F.linear(*head).flatten(0, 1).tolist() for head in (student, teacher)]
    valid = None if mask is None else mask.flatten().tolist()
    total, count = reference.soft_label_kl(*logits, temperature, valid)
    assert term.total.item() == pytest.approx(total, rel=1e-9)
    assert term.count.item() == count
    assert term.total.dtype == term.count.dtype == torch.float64
    assert not term.count.requires_grad


@pytest.mark.parametrize("shape", [(6,), (2, 3), (2, 3, 4), (0,), (2, 0)])
def test_rows_of_any_shape(shape):
    student, teacher = draw(2, shape)
    valid = torch.rand(shape, generator=torch.Generator().manual_seed(3)) < 0.7
    for mask in (None, valid, valid.long()):
        options = {"valid": mask, "temperature": 0.5}
        (term, found), (wanted, expected) = (
            gradients(f, student, teacher, upstream=-1.7, **options) for f in (term_of, plain)
        )
        assert isinstance(term, LossTerm)
        assert_close((term.total, term.count, found), (wanted.total, wanted.count, expected))


def test_tied_weight_adds_what_both_uses_give():
    """The output weight is the embedding that the hidden vectors came from, twice the term, and a layer between."""
    (_, weight, bias), teacher = draw(4)
    tokens = torch.randint(0, CLASSES, (BATCH, LENGTH), generator=torch.Generator().manual_seed(5))
    found = []
    for function in (term_of, plain):
        tied = weight.clone().requires_grad_()
        hidden = F.embedding(tokens, tied).tanh()
        total = function([hidden, tied, bias], teacher).total + 2 * function([hidden.exp(), tied, None], teacher).total
        found.append(torch.autograd.grad(total, tied)[0])
    assert_close(*found, rtol=1e-9, atol=1e-12)


def test_gradcheck_of_upstream_arithmetic():
    """The term inside a larger loss, its mean scaled by something that has a gradient too."""
    student, teacher = draw(7, (2, 2))
    mask = torch.tensor([[True, False], [True, True]])

    def loss(factor, *leaves):
        return (term_of(leaves, teacher, valid=mask, temperature=2.0).mean * factor).exp()

    leaves = [torch.tensor(0.3, dtype=torch.float64), *student]
    assert torch.autograd.gradcheck(loss, [x.requires_grad_() for x in leaves])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_losses_are_float32_and_gradients_as_their_tensors(dtype):
    student, teacher = draw(dtype=dtype)
    term, found = gradients(term_of, student, teacher, valid=make_mask("left", LENGTH))
    assert term.total.dtype == term.count.dtype == torch.float32
    assert [x.dtype for x in found] == [dtype] * 3
    assert all(x.isfinite().all() and x.any() for x in found)


@pytest.mark.parametrize("teacher_dtype", [torch.float32, torch.float64])
def test_autocast_changes_nothing(teacher_dtype):
    student, teacher = draw(dtype=torch.float32)
    teacher = [x.to(teacher_dtype) for x in teacher]
    wanted, expected = gradients(term_of, student, teacher)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        term, found = gradients(term_of, student, teacher)
    assert term.total.dtype == term.count.dtype == teacher_dtype
    assert_close((term.total, found), (wanted.total, expected), rtol=0, atol=0)


def test_arguments_are_left_alone():
    student, teacher = draw()
    before = [x.clone() for x in (*student, *teacher)]
    gradients(term_of, student, teacher, temperature=3.0, valid=make_mask("right", LENGTH))
    assert all(torch.equal(x, y) for x, y in zip((*student, *teacher), before, strict=True))


HIDDEN, WEIGHT, BIAS = torch.randn(2, 4, 6), torch.randn(9, 6), torch.randn(9)
MISTAKES = {
    r"student_hidden has shape \[6\]; it has to be \[rows..., width\]": ([HIDDEN[0, 0], WEIGHT, HIDDEN, WEIGHT], {}),
    r"teacher_hidden has shape \[4, 6\]; it has to be \[rows..., width\], with as many axes as student_hidden": (
        [HIDDEN, WEIGHT, HIDDEN[0], WEIGHT],
        {},
    ),
    r"teacher_hidden has shape \[2, 3, 6\] and student_hidden \[2, 4, 6\]; their first 2 axes": (
        [HIDDEN, WEIGHT, HIDDEN[:, :3], WEIGHT],
        {},
    ),
    r"student_weight has shape \[6, 9\]; it has to be \[V, 6\], V classes as wide as student_hidden": (
        [HIDDEN, WEIGHT.T, HIDDEN, WEIGHT],
        {},
    ),
    r"teacher_weight has shape \[9, 5\]; it has to be \[V, 6\]": ([HIDDEN, WEIGHT, HIDDEN, WEIGHT[:, 1:]], {}),
    r"student_weight has shape \[9\]; it has to be \[V, width\]": ([HIDDEN, BIAS, HIDDEN, WEIGHT], {}),
    r"student_weight has shape \[0, 6\]": ([HIDDEN, WEIGHT[:0], HIDDEN, WEIGHT[:0]], {}),
    "student_weight has 9 rows and teacher_weight 8; they have to be the same classes": (
        [HIDDEN, WEIGHT, HIDDEN, WEIGHT[1:]],
        {},
    ),
    "student_hidden is int64; it has to be floating point": ([HIDDEN.long(), WEIGHT, HIDDEN, WEIGHT], {}),
    "teacher_weight is int64": ([HIDDEN, WEIGHT, HIDDEN, WEIGHT.long()], {}),
    r"student_bias has shape \[8\]; it has to be \[9\]": ([], {"student_bias": BIAS[1:]}),
    r"teacher_bias has shape \[1, 9\]; it has to be \[V\]": ([], {"teacher_bias": BIAS[None]}),
    "student_weight is on meta and student_hidden on cpu": ([HIDDEN, WEIGHT.to("meta"), HIDDEN, WEIGHT], {}),
    "teacher_bias is on meta and teacher_hidden on cpu": ([], {"teacher_bias": BIAS.to("meta")}),
    "temperature is 0; it has to be above 0": ([], {"temperature": 0}),
    r"valid has shape \[4\]; it has to be \[2, 4\]": ([], {"valid": torch.ones(4, dtype=torch.bool)}),
    "valid is float32; it has to be bool": ([], {"valid": torch.ones(2, 4)}),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_is_refused(message):
    arguments, options = MISTAKES[message]
    with pytest.raises(KernelError, match=message) as caught:
        soft_label_kl_from_hidden(*(arguments or [HIDDEN, WEIGHT, HIDDEN, WEIGHT]), **options)
    assert "\n" not in str(caught.value)
