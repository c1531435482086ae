"""Every objective against an independent float64 transcription of its paper's equation, to 1e-9."""

import itertools
from pathlib import Path

import pytest
import torch

from limbeck import objectives
from limbeck.objectives import OBJECTIVES
from tests.objectives import reference
from tests.support.masks import NAMES, make_mask

# Transcribed in the file beside, with a solver of its own.
_ELSEWHERE = {"layer_emd": "test_layer_emd.py", "attention_layer_emd": "test_layer_emd.py"}
BATCH, LENGTH = 4, 7
TOLERANCE = 1e-9


def vectors(seed, *shape, scale=1.0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * scale


def lists(*tensors):
    return [None if x is None else x.tolist() for x in tensors]


def agrees(term, expected):
    total, count = expected
    assert term.total.dtype == torch.float64
    assert term.total.item() == pytest.approx(total, rel=TOLERANCE, abs=TOLERANCE)
    assert term.count.item() == count
    assert not term.count.requires_grad
    assert term.mean.item() == pytest.approx(total / max(count, 1), rel=TOLERANCE, abs=TOLERANCE)


@pytest.mark.parametrize("backend", ["reference", "blocked", "auto"])
@pytest.mark.parametrize("name", NAMES)
def test_relation_kl_with_masks(name, backend):
    """Three relation heads over a student with head sizes 2 and a teacher with 4, whatever their attention heads."""
    sa, sb, ta, tb = (vectors(i, BATCH, LENGTH, w, scale=1.5) for i, w in enumerate((6, 6, 12, 12)))
    mask = make_mask(name, LENGTH)
    for causal in (False, True):
        term = objectives.relation_kl(sa, sb, ta, tb, heads=3, valid=mask, causal=causal, backend=backend)
        agrees(term, reference.relation_kl(*lists(sa, sb, ta, tb), 3, *lists(mask), causal))


@pytest.mark.parametrize("backend", ["reference", "blocked"])
@pytest.mark.parametrize("pair", list(itertools.product(range(3), repeat=2)))
def test_relation_kl_of_all_nine_pairs(pair, backend):
    student, teacher = ([vectors(s + i, 2, 5, w) for i in range(3)] for s, w in ((0, 8), (10, 20)))
    mask = make_mask("gaps", 5)[:2]
    given = [student[pair[0]], student[pair[1]], teacher[pair[0]], teacher[pair[1]]]
    for heads in (1, 2, 4):
        term = objectives.relation_kl(*given, heads=heads, valid=mask, backend=backend)
        agrees(term, reference.relation_kl(*lists(*given), heads, *lists(mask)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("widths", [(6, 12), (12, 12), (12, 6)])
def test_attention_score_mse(name, widths):
    given = [vectors(i, BATCH, LENGTH, widths[i // 2]) for i in range(4)]
    mask = make_mask(name, LENGTH)
    term = objectives.attention_score_mse(*given, heads=3, valid=mask)
    agrees(term, reference.attention_score_mse(*lists(*given), 3, *lists(mask)))


@pytest.mark.parametrize("name", NAMES)
def test_hidden_terms(name):
    student, other, teacher = (vectors(i, BATCH, LENGTH, w) for i, w in enumerate((4, 6, 6)))
    matrix, linear = vectors(9, 4, 6), torch.nn.Linear(4, 6, dtype=torch.float64)
    mask = make_mask(name, LENGTH)
    agrees(objectives.hidden_mse(other, teacher, valid=mask), reference.hidden_mse(*lists(other, teacher, mask)))
    agrees(
        objectives.hidden_mse(student, teacher, valid=mask, projection=matrix),
        reference.hidden_mse(*lists(student, teacher, mask, matrix)),
    )
    agrees(
        objectives.hidden_mse(student, teacher, valid=mask, projection=linear),
        reference.hidden_mse(*lists(student, teacher, mask, linear.weight.T, linear.bias)),
    )
    agrees(
        objectives.hidden_mse(student, teacher, valid=mask, projection=lambda x: x @ matrix),
        reference.hidden_mse(*lists(student, teacher, mask, matrix)),
    )
    agrees(objectives.hidden_cosine(other, teacher, valid=mask), reference.hidden_cosine(*lists(other, teacher, mask)))


@pytest.mark.parametrize("name", NAMES)
def test_direct_mse(name):
    student, teacher, maps = vectors(0, BATCH, LENGTH, 6), vectors(1, BATCH, LENGTH, 12), vectors(2, 3, 2, 4)
    mask = make_mask(name, LENGTH)
    term = objectives.direct_mse(student, teacher, heads=3, valid=mask, projections=maps)
    agrees(term, reference.direct_mse(*lists(student, teacher), 3, *lists(mask, maps)))
    term = objectives.direct_mse(teacher * 2, teacher, heads=3, valid=mask)
    agrees(term, reference.direct_mse(*lists(teacher * 2, teacher), 3, *lists(mask)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_soft_label_kl(name, temperature):
    student, teacher = vectors(0, BATCH, LENGTH, 5, scale=2.0), vectors(1, BATCH, LENGTH, 5, scale=2.0)
    mask = make_mask(name, LENGTH)
    term = objectives.soft_label_kl(student, teacher, temperature=temperature, valid=mask)
    rows = lists(student.flatten(0, 1), teacher.flatten(0, 1))
    agrees(term, reference.soft_label_kl(*rows, temperature, *lists(None if mask is None else mask.flatten())))
    term = objectives.soft_label_kl(student[:, 0], teacher[:, 0], temperature=temperature)
    agrees(term, reference.soft_label_kl(*lists(student[:, 0], teacher[:, 0]), temperature))


def test_masked_lm_ce():
    logits = vectors(0, BATCH, LENGTH, 9, scale=3.0)
    labels = torch.randint(0, 9, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))
    labels[torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(2)) < 0.7] = -100
    agrees(objectives.masked_lm_ce(logits, labels), reference.masked_lm_ce(*lists(logits, labels)))


def test_sample_terms():
    student, teacher = vectors(0, 6, 4), vectors(1, 6, 9)
    agrees(objectives.sample_relation_kl(student, teacher), reference.sample_relation_kl(*lists(student, teacher)))
    projected, labels = vectors(2, 6, 9), torch.tensor([0, 1, 0, 2, 1, 0])
    for temperature, scale in ((0.07, 0.1), (1.0, 1.0)):
        term = objectives.sample_contrastive(projected * scale, teacher * scale, labels, temperature=temperature)
        agrees(term, reference.sample_contrastive(*lists(projected * scale, teacher * scale, labels), temperature))


def test_pooled_terms():
    student, other, teacher, matrix = vectors(0, 5, 4), vectors(1, 5, 6), vectors(2, 5, 6), vectors(3, 4, 6)
    agrees(objectives.patient_mse(other, teacher), reference.patient_mse(*lists(other, teacher)))
    agrees(objectives.pooled_cosine(other, teacher), reference.pooled_cosine(*lists(other, teacher)))
    term = objectives.pooled_cosine(student, teacher, projection=matrix)
    agrees(term, reference.pooled_cosine(*lists(student, teacher, matrix)))


def test_every_objective_has_a_transcription():
    assert [name for name in OBJECTIVES if not hasattr(reference, name) and name not in _ELSEWHERE] == []
    assert all((Path(__file__).parent / file).is_file() for file in _ELSEWHERE.values())


def test_hard_labels_of_classes_answers_and_values():
    logits, labels = vectors(0, 6, 4, scale=3), torch.tensor([0, 3, -100, 2, 1, -100])
    agrees(objectives.hard_label_ce(logits, labels), reference.hard_label_ce(*lists(logits, labels)))
    answers, places = vectors(1, 3, 2, 5, scale=3), torch.tensor([[0, 4], [-100, 2], [1, 1]])
    expected = reference.hard_label_ce(answers.flatten(0, 1).tolist(), places.flatten().tolist())
    agrees(objectives.hard_label_ce(answers, places), expected)
    values, wanted = vectors(2, 5, 1), vectors(3, 5)
    agrees(objectives.hard_label_mse(values, wanted), reference.hard_label_mse(*lists(values, wanted)))
    teacher = vectors(4, 5, 1)
    agrees(objectives.soft_label_mse(values, teacher), reference.soft_label_mse(*lists(values, teacher)))


def test_answers_at_padding_are_excluded_by_minus_infinity():
    """The value and gradient are those of the shorter text."""
    student, teacher = (vectors(i, 2, 2, 4).requires_grad_(i == 0) for i in range(2))
    padded = [torch.cat([x, x.new_full((2, 2, 3), -torch.inf)], -1) for x in (student, teacher)]
    for function, given in ((objectives.soft_label_kl, padded), (objectives.hard_label_ce, padded[:1])):
        extra = [] if function is objectives.soft_label_kl else [torch.tensor([[0, 3], [1, 1]])]
        short = [student, teacher] if function is objectives.soft_label_kl else [student]
        found, wanted = function(*given, *extra), function(*short, *extra)
        torch.testing.assert_close(found.total, wanted.total)
        gradients = [torch.autograd.grad(term.total, student)[0] for term in (found, wanted)]
        torch.testing.assert_close(*gradients)
