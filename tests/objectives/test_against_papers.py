"""Every objective against an independent float64 transcription of its paper's equation, to 1e-9."""

from dataclasses import replace

import pytest
import torch

from limbeck import objectives
from limbeck.objectives import OBJECTIVES
from tests.conformance.inputs import MASKED, make_case
from tests.objectives import reference
from tests.support.masks import NAMES, make_mask

LENGTH, TOLERANCE = 7, 1e-9


def lists(given):
    return given.tolist() if isinstance(given, torch.Tensor) else given


def agrees(term, expected):
    total, count = expected
    assert term.total.dtype == torch.float64
    assert term.total.item() == pytest.approx(total, rel=TOLERANCE, abs=TOLERANCE)
    assert term.count.item() == count
    assert not term.count.requires_grad
    assert term.mean.item() == pytest.approx(total / max(count, 1), rel=TOLERANCE, abs=TOLERANCE)


def agrees_as_written(name, case, *ways, **options):
    """Compare a case with the reference; `ways` are further keywords that change no number."""
    case = replace(case, options=case.options | options)
    objective = replace(OBJECTIVES[name], function=getattr(reference, name))
    keywords = {**case.options, **OBJECTIVES[name].arguments({"valid": case.valid, "groups": case.groups})}
    streams = [list(map(lists, side)) for side in (case.student, case.teacher)]
    expected = objective.call(*streams, lists(case.labels), **{key: lists(x) for key, x in keywords.items()})
    for way in ways or ({},):
        agrees(replace(case, options=case.options | way).call(name), expected)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective(name):
    """Over every shape of mask, where there are any."""
    case = make_case(name, length=LENGTH)
    for mask in map(make_mask, NAMES, [LENGTH] * len(NAMES)) if name in MASKED else ():
        labels = case.labels if mask is None or case.labels is None else case.labels.masked_fill(~mask, -100)
        agrees_as_written(name, replace(case, valid=mask, labels=labels))
    agrees_as_written(name, case)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_relations_of_all_kinds(heads):
    """One tensor taken twice or two, seen by all or in order, with every backend of a CPU."""
    case = make_case("relation_kl", length=LENGTH)
    wide = [replace(case, student=[x[..., :4] for x in case.student], teacher=[x[..., :8] for x in case.teacher])]
    wide += [replace(x, student=x.student[:1] * 2, teacher=x.teacher[:1] * 2) for x in wide]
    for each in wide:
        for causal in (False, True):
            backends = [{"backend": backend} for backend in ("reference", "blocked", "auto")]
            agrees_as_written("relation_kl", each, *backends, heads=heads, causal=causal)


def test_scores_of_a_narrower_and_an_equal_teacher():
    case = make_case("attention_score_mse", length=LENGTH)
    agrees_as_written("attention_score_mse", replace(case, student=case.teacher, teacher=case.student))
    agrees_as_written("attention_score_mse", replace(case, student=[x * 2 for x in case.teacher]))


def test_learned_maps_of_all_kinds():
    """None, where widths are equal; a matrix; a function; a module with a bias."""
    for name in ("hidden_mse", "direct_mse", "pooled_cosine", "pooled_distance"):
        case = make_case(name)
        without_map = {key: x for key, x in case.options.items() if not key.startswith("projection")}
        agrees_as_written(name, replace(case, student=[x.flip(0) for x in case.teacher], options=without_map))
    case = make_case("hidden_mse")
    matrix, linear = case.options["projection"], torch.nn.Linear(6, 10, dtype=torch.float64)
    agrees_as_written("hidden_mse", case, {"projection": lambda x: x @ matrix})
    expected = reference.hidden_mse(
        *map(lists, (*case.student, *case.teacher, case.valid, linear.weight.T, linear.bias))
    )
    agrees(replace(case, options={"projection": linear}).call("hidden_mse"), expected)


def test_prefixes_and_squares():
    for prefix in (None, 1, 4, 10):
        agrees_as_written("pooled_cosine", make_case("pooled_cosine"), prefix=prefix)
        for squared in (False, True):
            agrees_as_written("pooled_distance", make_case("pooled_distance"), prefix=prefix, squared=squared)


def test_temperatures_and_labels():
    """A contrast of a single class and of all different: the other model's row of a sample is a positive one always."""
    agrees_as_written("soft_label_kl", make_case("soft_label_kl"), temperature=1.0)
    case = make_case("sample_contrastive")
    for labels in (torch.zeros(4).long(), torch.arange(4)):
        agrees_as_written("sample_contrastive", replace(case, labels=labels), temperature=1.0)


def test_weights_of_classes():
    """Beside torch's own losses with the same weights."""
    weights = torch.tensor([0.5, 3.0, 1.0, 0.25, 7.0], dtype=torch.float64)
    options = {"class_weights": weights}
    for name, theirs in (
        ("hard_label_ce", torch.nn.CrossEntropyLoss(weights, reduction="sum")),
        ("hard_label_binary_ce", torch.nn.BCEWithLogitsLoss(pos_weight=weights, reduction="sum")),
    ):
        case = make_case(name)
        agrees_as_written(name, case, **options)
        given = case.student[0], case.labels
        if name == "hard_label_ce":
            given = given[0].flatten(0, 1), given[1].flatten()
        torch.testing.assert_close(replace(case, options=options).call(name).total, theirs(*given))


def test_soft_labels_of_each_class_are_those_of_two_classes():
    """With scores z and 0; and the gradient is that of the binary cross entropy of the probabilities."""
    case = make_case("soft_label_binary_kl")
    pairs = [torch.stack([x, torch.zeros_like(x)], -1) for x in (*case.student, *case.teacher)]
    term, gradients = case.gradients("soft_label_binary_kl")
    torch.testing.assert_close(term.total, objectives.soft_label_kl(*pairs, temperature=2.0).total)
    own = case.student[0].clone().requires_grad_()
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    (4 * bce(own / 2, (case.teacher[0] / 2).sigmoid(), reduction="sum")).backward()
    torch.testing.assert_close(gradients[0], own.grad)


def test_rows_without_an_axis_of_tokens():
    """Scores of classes, `[B, classes]`, and answers by start and end."""
    student, teacher = (x[:, 0] for x in (*make_case("soft_label_kl").student, *make_case("soft_label_kl").teacher))
    labels = torch.tensor([0, 3, -100, 2])
    agrees(objectives.soft_label_kl(student, teacher), reference.soft_label_kl([lists(student)], [lists(teacher)]))
    agrees(objectives.hard_label_ce(student, labels), reference.hard_label_ce([lists(student)], [lists(labels)]))


def test_answers_at_padding_are_excluded_by_minus_infinity():
    """The value and gradient are those of the shorter text."""
    student, teacher = torch.randn(2, 2, 2, 4, dtype=torch.float64)
    student.requires_grad_()
    padded = [torch.cat([x, x.new_full((2, 2, 3), -torch.inf)], -1) for x in (student, teacher)]
    labels = torch.tensor([[0, 3], [1, 1]])
    for function, found, wanted in (
        (objectives.soft_label_kl, padded, [student, teacher]),
        (objectives.hard_label_ce, [padded[0], labels], [student, labels]),
    ):
        terms = [function(*given) for given in (found, wanted)]
        torch.testing.assert_close(terms[0].total, terms[1].total)
        torch.testing.assert_close(*(torch.autograd.grad(term.total, student)[0] for term in terms))
