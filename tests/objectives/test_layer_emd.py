"""BERT-EMD: against its formulas written out, with the transportation problem solved by scipy."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch.testing import assert_close

from limbeck.errors import KernelError
from limbeck.objectives import earth_mover
from limbeck.objectives.earth_mover import (
    attention_layer_emd,
    cost_attention,
    layer_emd,
    transport_flow,
    uniform_weights,
)
from tests.objectives import reference
from tests.support.masks import NAMES, make_mask

BATCH, LENGTH, STUDENT, TEACHER, HEADS = 4, 6, 4, 6, 2
SHAPES = [(1, 1), (1, 3), (3, 1), (2, 5), (3, 3), (5, 2)]


def solve(costs, own, other):
    """The least Σ f_ij D_ij, f ≥ 0, with row sums `own` and column sums `other`."""
    m, n = len(own), len(other)
    rows = [[float(k // n == i) for k in range(m * n)] for i in range(m)]
    columns = [[float(k % n == j) for k in range(m * n)] for j in range(n)]
    found = linprog(np.ravel(costs), A_eq=[*rows, *columns], b_eq=[*own, *other])
    return found.fun, found.x.reshape(m, n)


def written_out(distances, own, other):
    """Mean Σ f_ij D_ij / Σ f_ij of pairs of layers, each a (total, count) of tests/objectives/reference.py."""
    count = distances[0][0][1]
    least, flow = solve([[total / max(1, count) for total, _ in row] for row in distances], own, other)
    return least / flow.sum(), count


def normal(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def draw(m, n, seed=0, width=STUDENT):
    """Hidden states of m student and n teacher layers, and a matrix between their widths."""
    student = [normal(BATCH, LENGTH, width, seed=seed + i) for i in range(m)]
    teacher = [normal(BATCH, LENGTH, TEACHER, seed=seed + 50 + j) for j in range(n)]
    return student, teacher, normal(width, TEACHER, seed=seed + 99)


def draw_pairs(m, n, seed=0):
    student, teacher, _ = draw(2 * m, 2 * n, seed)
    return list(zip(student[:m], student[m:], strict=True)), list(zip(teacher[:n], teacher[n:], strict=True))


def draw_weights(layers, seed):
    return torch.softmax(normal(layers, seed=seed), 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(2, 3), (3, 2)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["hidden", "attention"])
def test_against_the_formula(kind, name, shape, weighted):
    valid = make_mask(name, LENGTH)
    marks = None if valid is None else valid.tolist()
    own, other = (draw_weights(k, 7) if weighted else uniform_weights(k) for k in shape)
    given = {"student_weights": own, "teacher_weights": other} if weighted else {}
    if kind == "hidden":
        student, teacher, matrix = draw(*shape)
        term = layer_emd(student, teacher, valid=valid, projection=matrix, **given)
        pairs = [
            [reference.hidden_mse(x.tolist(), y.tolist(), marks, matrix.tolist()) for y in teacher] for x in student
        ]
    else:
        student, teacher = draw_pairs(*shape)
        term = attention_layer_emd(student, teacher, heads=HEADS, valid=valid, **given)
        pairs = [
            [reference.attention_score_mse(*(z.tolist() for z in (*x, *y)), HEADS, marks) for y in teacher]
            for x in student
        ]
    mean, count = written_out(pairs, own.tolist(), other.tolist())
    assert term.count.item() == count
    assert_close(term.mean.item(), mean, rtol=1e-9, atol=0)


@pytest.mark.parametrize("chunk", [1, 2 * 3 * TEACHER * 7, 2 * 3 * LENGTH * 5, 2 * 3 * LENGTH * LENGTH])
def test_many_tokens_add_up_over_the_pieces(monkeypatch, chunk):
    """Costs computed piece by piece are those of the whole, with a piece left over at the end."""
    (student, teacher, matrix), pairs = draw(2, 3), draw_pairs(2, 3)
    valid = make_mask("gaps", LENGTH)

    def both():
        return [
            layer_emd(student, teacher, valid=valid, projection=matrix),
            attention_layer_emd(*pairs, heads=HEADS, valid=valid),
        ]

    whole = both()
    monkeypatch.setattr(earth_mover, "CPU_CHUNK", chunk)
    for given, expected in zip(both(), whole, strict=True):
        assert_close(given.costs, expected.costs)
        assert_close(given.total, expected.total)


def test_long_texts_compare_scores_pair_by_pair(monkeypatch):
    pairs, valid = draw_pairs(2, 3), make_mask("gaps", LENGTH)
    short = attention_layer_emd(*pairs, heads=HEADS, valid=valid)
    monkeypatch.setattr(earth_mover, "SHORT", 0)
    long = attention_layer_emd(*pairs, heads=HEADS, valid=valid)
    assert_close(long.costs, short.costs)
    assert_close(long.total, short.total)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_flow_is_a_cheapest_one(shape, seed):
    costs = normal(*shape, seed=seed).abs()
    own, other = draw_weights(shape[0], seed + 10), draw_weights(shape[1], seed + 20)
    flow = transport_flow(costs, own, other)
    least, _ = solve(costs.tolist(), own.tolist(), other.tolist())
    assert (flow >= 0).all()
    assert_close(flow.sum(1), own)
    assert_close(flow.sum(0), other)
    assert_close((flow * costs).sum().item(), least, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_flow_does_not_depend_on_the_scale_of_the_costs(scale):
    costs = normal(3, 5, seed=4).abs()
    own, other = uniform_weights(3), uniform_weights(5)
    assert_close(transport_flow(costs * scale, own, other), transport_flow(costs, own, other))


def test_float32_weights_are_taken():
    weights = [draw_weights(k, k).float() for k in (12, 24)]
    flow = transport_flow(normal(12, 24, seed=0).abs().float(), *weights)
    assert flow.dtype == torch.float64
    assert_close(flow.sum().item(), 1.0, rtol=1e-12, atol=0)


def test_gradients_are_those_of_all_pairs():
    """The gathered gradient of a layer is the sum over the pairs it moves to."""
    student, teacher, matrix = draw(3, 7)
    leaves = [x.clone().requires_grad_() for x in student]
    parts = layer_emd(leaves, teacher, projection=matrix)
    plain = sum(
        parts.flow[i, j] * (x @ matrix - y).square().sum() for i, x in enumerate(leaves) for j, y in enumerate(teacher)
    )
    assert_close(parts.total, plain)
    assert_close((parts.flow * parts.costs).sum(), parts.mean.detach())
    assert not (parts.costs.requires_grad or parts.flow.requires_grad or parts.count.requires_grad)
    for given, expected in zip(
        torch.autograd.grad(parts.total, leaves), torch.autograd.grad(plain, leaves), strict=True
    ):
        assert_close(given, expected)


def test_zero_when_every_layer_finds_its_equal():
    """The order of the layers does not matter, nor that one is there twice."""
    _, layers, _ = draw(0, 3)
    assert layer_emd(layers, layers).total == 0
    assert layer_emd(layers, [layers[2], layers[0], layers[1]]).total == 0
    assert layer_emd(layers, [x for x in layers for _ in range(2)]).total == 0
    pairs = list(zip(layers, reversed(layers), strict=True))
    assert_close(attention_layer_emd(pairs, pairs[::-1], heads=HEADS).total.item(), 0.0, rtol=0, atol=1e-12)
    assert layer_emd(layers, layers[:2]).total > 0


def test_without_cost_the_weights_stay():
    costs, own, other = torch.zeros(2, 3), draw_weights(2, 0), draw_weights(3, 0)
    flow = transport_flow(costs, own, other)
    for new, old in zip(cost_attention(costs, flow, own, other, temperature=1.0), (own, other), strict=True):
        assert_close(new, old)


@pytest.mark.parametrize("kind", ["hidden", "attention"])
def test_a_layer_without_weight_has_gradient_zero(kind):
    student, teacher, matrix = draw(2, 3)
    leaves = [x.requires_grad_() for x in student]
    weights = {"student_weights": torch.tensor([0.0, 1.0])}
    if kind == "hidden":
        total = layer_emd(leaves, teacher, projection=matrix, **weights).total
    else:
        pairs = [(x, x) for x in leaves], [(y, y) for y in teacher]
        total = attention_layer_emd(*pairs, heads=HEADS, **weights).total
    none, some = torch.autograd.grad(total, leaves)
    assert (none == 0).all()
    assert (some != 0).any()


@pytest.mark.parametrize("kind", ["hidden", "attention"])
def test_processes_that_share_a_batch_move_by_its_costs(kind):
    """The parts of two add up to the whole; by its own costs each would move another way."""
    student, teacher, matrix = draw(2, 3)
    leaves = [(x * torch.linspace(0.2, 3, BATCH)[:, None, None]).requires_grad_() for x in student]

    def measure(rows, across=None):
        own, other = [x[rows] for x in leaves], [y[rows] for y in teacher]
        if kind == "hidden":
            return layer_emd(own, other, projection=matrix, across=across)
        pairs = [(x, x) for x in own], [(y, y) for y in other]
        return attention_layer_emd(*pairs, heads=HEADS, across=across)

    halves, told = (slice(0, 1), slice(1, BATCH)), []
    for rows in halves:
        measure(rows, across=lambda values: told.append(values.detach()) or values)
    whole, parts = measure(slice(0, BATCH)), [measure(rows, across=lambda _: sum(told)) for rows in halves]
    for part in parts:
        assert_close(part.costs, whole.costs)
        assert_close(part.flow, whole.flow)
    assert_close(sum(part.total for part in parts), whole.total)
    assert_close(sum(part.count for part in parts), whole.count)
    gradients = torch.autograd.grad(sum(part.total for part in parts), leaves)
    for found, expected in zip(gradients, torch.autograd.grad(whole.total, leaves), strict=True):
        assert_close(found, expected)
    assert not torch.allclose(measure(halves[0]).costs, whole.costs)


def attention_written_out(costs, flow, weights, temperature):
    """The new weights of the layers along the rows."""
    unit = [math.fsum(d * f for d, f in zip(*rows, strict=True)) for rows in zip(costs, flow, strict=True)]
    unit = [c / w for c, w in zip(unit, weights, strict=True)]
    ratio = [math.fsum(unit) / c for c in unit]
    exps = [math.exp((r - max(ratio)) / temperature) for r in ratio]
    return [e / math.fsum(exps) for e in exps]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("temperature", [0.5, 10.0])
def test_cost_attention_against_the_formula(shape, temperature):
    costs = normal(*shape, seed=1).abs() + 0.1
    own, other = draw_weights(shape[0], 2), draw_weights(shape[1], 3)
    flow = transport_flow(costs, own, other)
    new = cost_attention(costs, flow, own, other, temperature=temperature)
    mine = attention_written_out(costs.tolist(), flow.tolist(), own.tolist(), temperature)
    theirs = attention_written_out(costs.T.tolist(), flow.T.tolist(), other.tolist(), temperature)
    for given, expected in zip(new, (mine, theirs), strict=True):
        assert_close(given, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_cost_attention_prefers_the_cheap_layer():
    costs = torch.tensor([[1.0, 1.0], [3.0, 3.0]])
    own, other = uniform_weights(2), uniform_weights(2)
    new, even = cost_attention(costs, transport_flow(costs, own, other), own, other, temperature=1.0)
    # Unit costs 1 and 3, inverse ratios 4 and 4/3.
    assert_close(new[0].item(), 1 / (1 + math.exp(4 / 3 - 4)))
    assert even.sum() == 1


def test_cost_attention_in_the_corners():
    def update(costs, own, other):
        return cost_attention(costs, transport_flow(costs, own, other), own, other, temperature=1.0)

    free = torch.tensor([[0.0, 9.0, 9.0], [9.0, 0.0, 9.0], [9.0, 9.0, 5.0]])
    new, _ = update(free, uniform_weights(3), uniform_weights(3))
    assert_close(new, torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))

    # No longer moved, but cheap for one teacher layer: unit costs 1 (its cheapest pair) and 2.
    back, _ = update(torch.tensor([[1.0, 7.0], [2.0, 2.0]]), torch.tensor([0.0, 1.0]), uniform_weights(2))
    assert_close(back[0].item(), 1 / (1 + math.exp(1.5 - 3)))

    own, other = draw_weights(2, 0), draw_weights(2, 1)
    for odd in (float("nan"), float("inf")):
        same = update(torch.tensor([[odd, 1.0], [1.0, 1.0]]), own, other)
        assert_close(torch.cat(same), torch.cat([own, other]))


def test_a_student_that_diverged_shows_in_the_loss():
    """Whoever watches the terms finds the value; the solver does not hide it behind an error of its own."""
    student, teacher, matrix = draw(2, 3)
    student[0][0, 0, 0] = float("inf")
    assert not layer_emd(student, teacher, projection=matrix).total.isfinite()


def test_weights_that_do_not_fit():
    costs, half, third = torch.ones(2, 3), uniform_weights(2), uniform_weights(3)
    for weights, message in (
        (third, r"student_weights has shape \[3\]"),
        (torch.tensor([1.5, -0.5]), "negative"),
        (torch.tensor([float("nan"), 1.0]), "nan"),
        (torch.tensor([0.5, 0.6]), "sums to 1.1; it has to sum to 1"),
        (torch.zeros(2), "sums to 0"),
    ):
        with pytest.raises(KernelError, match=message):
            transport_flow(costs, weights, third)
        with pytest.raises(KernelError, match=message):
            cost_attention(costs, torch.full((2, 3), 1 / 6), weights, third, temperature=1.0)
        with pytest.raises(KernelError, match=message):
            layer_emd(*draw(2, 3, width=TEACHER)[:2], student_weights=weights)
    with pytest.raises(KernelError, match="teacher_weights has shape"):
        attention_layer_emd(*draw_pairs(2, 3), heads=HEADS, teacher_weights=half)
    with pytest.raises(KernelError, match="layers is 0"):
        uniform_weights(0)


def test_updates_that_do_not_fit():
    costs, own, other = torch.rand(2, 3), uniform_weights(2), uniform_weights(3)
    flow = transport_flow(costs, own, other)
    for temperature in (0.0, -1.0, float("nan")):
        with pytest.raises(KernelError, match="temperature is"):
            cost_attention(costs, flow, own, other, temperature=temperature)
    with pytest.raises(KernelError, match="flow has shape"):
        cost_attention(costs, flow.T, own, other, temperature=1.0)
    with pytest.raises(KernelError, match="flow misses student_weights by 0.3"):
        cost_attention(costs, flow, torch.tensor([0.2, 0.8]), other, temperature=1.0)
    for wrong in (torch.ones(3), torch.ones(0, 3)):
        with pytest.raises(KernelError, match="costs has shape"):
            transport_flow(wrong, own, other)


def test_layers_that_do_not_fit():
    student, teacher, matrix = draw(2, 3)
    pairs, others = draw_pairs(2, 3)
    by_hidden, by_scores = partial(layer_emd, projection=matrix), partial(attention_layer_emd, heads=HEADS)
    for call, own, their, message in (
        (by_hidden, [], teacher, "student_layers is empty"),
        (by_scores, pairs, [], "teacher_layers is empty"),
        (by_hidden, student, [teacher[0], teacher[1][:, :-1]], r"teacher_layers\[1\] has shape"),
        (by_hidden, [student[0], teacher[0]], teacher, r"student_layers\[1\] is 6 wide and student_layers\[0\] 4"),
        (layer_emd, student, teacher, "give a projection"),
        (by_hidden, [student[0].long()], teacher, r"student_layers\[0\] is int64"),
        (by_scores, [(student[0],)], others, r"student_layers\[0\] holds 1 tensors"),
        (by_scores, [(student[0], teacher[0])], others, r"student_layers\[0\] key is 6 wide"),
        (partial(by_scores, heads=3), pairs, others, "heads 3 does not divide"),
        (partial(by_hidden, valid=torch.ones(BATCH, LENGTH)), student, teacher, "valid is float32"),
    ):
        with pytest.raises(KernelError, match=message):
            call(own, their)
