"""What every objective has to keep, for all that are registered: a new one is held to it without being named here."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from limbeck.objectives import OBJECTIVES, LossTerm
from tests.conformance.inputs import MAKERS, MASKED, NAMES, all_masked, make_case, make_equal, with_padding

COUPLED = [name for name in NAMES if OBJECTIVES[name].batch_coupled]
ALONE = [name for name in NAMES if name not in COUPLED]
every = pytest.mark.parametrize("name", NAMES)
every_masked = pytest.mark.parametrize("name", MASKED)


def test_every_objective_has_inputs():
    assert sorted(MAKERS) == sorted(NAMES), "give each registered objective a maker in tests/conformance/inputs.py"


@every
def test_the_record_tells_the_truth(name):
    objective, case = OBJECTIVES[name], make_case(name)
    assert objective.name == name == objective.function.__name__
    layers = len(case.student) // objective.student_streams
    assert (layers > 1) == objective.takes_layers
    assert len(case.student) == layers * objective.student_streams
    assert len(case.teacher) == (len(case.student) if objective.takes_teacher else 0)
    assert (case.labels is not None) == objective.takes_labels
    assert ("heads" in case.options) == objective.takes_heads
    assert any(key.startswith("projection") for key in case.options) == objective.takes_projection


@every
def test_returns_a_sum_and_a_count(name):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        wanted = torch.float64 if dtype == torch.float64 else torch.float32
        term, gradients = make_case(name).to(dtype).gradients(name)
        assert isinstance(term, LossTerm)
        for scalar in (term.total, term.count):
            assert scalar.shape == ()
            assert scalar.dtype == wanted
        assert not term.count.requires_grad
        assert term.total > 0
        assert_close(term.mean, term.total / term.count)
        assert [gradient.dtype for gradient in gradients] == [dtype] * len(gradients)
        assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients)


@pytest.mark.parametrize("name", [n for n in NAMES if OBJECTIVES[n].is_divergence])
def test_zero_at_equality(name):
    for dtype, least in ((torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 1e-6)):
        term, gradients = make_equal(make_case(name)).to(dtype).gradients(name)
        assert term.total == 0
        assert all(gradient.abs().max() <= least for gradient in gradients)


@every_masked
def test_all_masked_is_zero_with_zero_gradient(name):
    for dtype in (torch.float64, torch.float32):
        case = all_masked(make_case(name)).to(dtype)
        term, gradients = case.gradients(name)
        assert (term.total, term.count, term.mean) == (0, 0, 0)
        assert not any(gradient.any() for gradient in gradients)


@every_masked
@pytest.mark.parametrize(("before", "after"), [(0, 5), (4, 0), (3, 2)])
def test_padding_changes_nothing(name, before, after):
    case = make_case(name)
    length = case.student[0].shape[1]
    term, gradients = case.gradients(name)
    padded, padded_gradients = with_padding(case, before, after).gradients(name)
    assert_close(padded.total, term.total, rtol=1e-12, atol=0)
    assert padded.count == term.count
    for gradient, wider in zip(gradients, padded_gradients, strict=True):
        inside = slice(before, before + length)
        assert_close(wider[:, inside], gradient, rtol=1e-10, atol=1e-14)
        outside = wider.clone()
        outside[:, inside] = 0
        assert not outside.any()


@pytest.mark.parametrize("name", [n for n in NAMES if OBJECTIVES[n].by_token])
def test_real_tokens_in_one_row_are_the_same(name):
    case = make_case(name)
    assert not case.valid.all()
    rows = replace(case.map(lambda x: x[case.valid][None]), valid=None)
    term, gradients = case.gradients(name)
    found, found_gradients = rows.gradients(name)
    assert_close(found.total, term.total, rtol=1e-12, atol=0)
    assert found.count == term.count
    for row, gradient in zip(found_gradients, gradients, strict=True):
        assert_close(row[0], gradient[case.valid], rtol=1e-10, atol=1e-14)


@every_masked
def test_what_lies_at_padding_does_not_matter(name):
    case = make_case(name)
    counted = case.valid if case.valid is not None else case.labels != -100
    for value in (0.0, 1e4, float("inf"), float("nan")):
        student, teacher = (
            [x.masked_fill(~counted[..., None], value) for x in side] for side in (case.student, case.teacher)
        )
        poisoned = replace(case, student=student, teacher=teacher)
        (term, gradients), (wanted, wanted_gradients) = poisoned.gradients(name), case.gradients(name)
        assert_close(term.total, wanted.total, rtol=1e-12, atol=0)
        assert_close(gradients, wanted_gradients, rtol=1e-10, atol=1e-14)
        assert not any(gradient[~counted].any() for gradient in gradients)


@pytest.mark.parametrize("name", ALONE)
def test_parts_of_a_batch_add_up(name):
    """Three parts of unequal size and unequal padding, and their gradients."""
    case = make_case(name, batch=6, length=7)
    whole, gradients = case.gradients(name)
    parts = [case.map(lambda x, s=s: x[s]).gradients(name) for s in (slice(0, 1), slice(1, 4), slice(4, 6))]
    joined = parts[0][0] + parts[1][0] + parts[2][0]
    assert_close(joined.total, whole.total, rtol=1e-12, atol=0)
    assert joined.count == whole.count
    assert_close(
        [torch.cat(same) for same in zip(*(g for _, g in parts), strict=True)], gradients, rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("name", COUPLED)
def test_coupled_terms_say_so(name):
    case = make_case(name, batch=6)
    halves = [case.map(lambda x, s=s: x[s]).call(name).total for s in (slice(0, 3), slice(3, 6))]
    assert abs(sum(halves) - case.call(name).total) > 1e-3


@pytest.mark.parametrize("name", [name for name in ALONE if OBJECTIVES[name].unit not in ("sample", "group")])
@pytest.mark.parametrize("length", [7, 10, 401])
def test_lengths_that_divide_nothing(name, length):
    """Each sample of a batch alone and packed without its gaps gives the same, in float32 too."""
    case = make_case(name, seed=length, batch=2, length=length)
    whole, gradients = case.gradients(name)
    counted = case.valid if case.valid is not None else case.labels != -100
    total = 0.0
    for b in range(2):
        alone, own = case.map(lambda x, b=b: x[b : b + 1, counted[b]]).gradients(name)
        total += alone.total
        for gradient, own_gradient in zip(gradients, own, strict=True):
            assert_close(gradient[b, counted[b]], own_gradient[0], rtol=1e-9, atol=1e-13)
    assert_close(total, whole.total, rtol=1e-11, atol=0)
    assert_close(case.to(torch.float32).call(name).total.double(), whole.total, rtol=1e-5, atol=0)


@every
def test_arguments_are_left_alone_and_the_teacher_gets_no_gradient(name):
    case = make_case(name)
    leaves = [[x.clone().requires_grad_() for x in side] for side in (case.student, case.teacher)]
    given = replace(case.map(torch.clone), student=leaves[0], teacher=leaves[1])
    given.call(name).total.backward()
    assert all(x.grad is None for x in given.teacher)
    found, before = ([*x.student, *x.teacher, x.labels, x.valid] for x in (given, case))
    assert all(x is y is None or torch.equal(x, y) for x, y in zip(found, before, strict=True))


@every
def test_learned_maps_get_a_gradient(name):
    case = make_case(name)
    for key in [key for key in case.options if key.startswith("projection")]:
        learned = case.options[key].clone().requires_grad_()
        replace(case, options={**case.options, key: learned}).call(name).total.backward()
        assert learned.grad.isfinite().all()
        assert learned.grad.any()


@every
def test_gradcheck(name):
    case = make_case(name, batch=2, length=3)

    def total(*student):
        return replace(case, student=list(student)).call(name).total

    assert torch.autograd.gradcheck(total, [x.clone().requires_grad_() for x in case.student])


@every
def test_upstream_gradient_scales(name):
    case = make_case(name)
    _, gradients = case.gradients(name)
    _, scaled = case.gradients(name, upstream=-3.7)
    assert_close(scaled, [gradient * -3.7 for gradient in gradients], rtol=1e-12, atol=1e-14)


@every
def test_error_in_bfloat16(name):
    """bfloat16 streams are computed in float32: the error is at most twice that of doing so by hand."""
    rounding = torch.finfo(torch.float32).eps
    found = []
    for seed in range(6):
        low = make_case(name, seed).to(torch.bfloat16)
        exact, exact_gradients = low.to(torch.float64).gradients(name)
        plain, plain_gradients = low.to(torch.float32).gradients(name)
        own, own_gradients = low.gradients(name)
        for mine, by_hand, wanted in zip(own_gradients, plain_gradients, exact_gradients, strict=True):
            assert (mine - wanted).norm() <= 2 * (by_hand.bfloat16() - wanted).norm()
        found.append([abs(x.total - exact.total) / exact.total for x in (own, plain)])
    error, plain_error = torch.tensor(found).square().mean(0).sqrt()
    assert error <= 2 * plain_error + rounding


@every
def test_autocast_changes_nothing(name):
    case = make_case(name).to(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = case.call(name)
    assert lowered.total.dtype == torch.float32
    assert_close(lowered.total, case.call(name).total)


@every
def test_count_is_a_constant_times_units(name):
    """So that a step's whole count is known before its first backward pass."""
    constants = set()
    for seed, (batch, length) in enumerate([(4, 6), (3, 9), (5, 6)]):
        case = make_case(name, seed, batch, length)
        constants.add(case.call(name).count.item() / case.units(name))
    assert len(constants) == 1
    assert constants.pop() > 0
