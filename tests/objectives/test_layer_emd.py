"""BERT-EMD beside its formulas: its flow, its pieces, its gradients, the weights that follow the costs."""

import math

import pytest
import torch
from torch.testing import assert_close

from limbeck.objectives import attention_layer_emd, earth_mover, layer_emd
from limbeck.objectives.layer_transport import cost_attention, transport_flow, uniform_weights
from tests.objectives import reference
from tests.support.masks import make_mask

BATCH, LENGTH, STUDENT, TEACHER, HEADS = 4, 6, 4, 6, 2
SHAPES = [(1, 1), (1, 3), (3, 1), (2, 5), (3, 3), (5, 2)]
both_kinds = pytest.mark.parametrize("kind", ["hidden", "attention"])


def normal(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def draw(m, n):
    """Hidden states of m student and n teacher layers."""
    student = [normal(BATCH, LENGTH, STUDENT, seed=i) for i in range(m)]
    return student, [normal(BATCH, LENGTH, TEACHER, seed=50 + j) for j in range(n)]


MATRIX = normal(STUDENT, TEACHER, seed=99)


def distance(kind, student, teacher, function=None, rows=slice(None), **options):
    """The distance of layers, whose hidden states are queries too, and keys the other way round."""
    if kind == "hidden":
        student, teacher = ([x[rows] for x in layers] for layers in (student, teacher))
        return layer_emd(student, teacher, projection=MATRIX, **options)
    student, teacher = ([(x[rows], x[rows].flip(-1)) for x in layers] for layers in (student, teacher))
    return attention_layer_emd(student, teacher, heads=HEADS, **options)


def draw_weights(layers, seed):
    return torch.softmax(normal(layers, seed=seed), 0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@both_kinds
def test_any_number_of_layers_and_their_weights(kind, shape, weighted):
    student, teacher = draw(*shape)
    valid = make_mask("gaps", LENGTH)
    names = ("student_weights", "teacher_weights") if weighted else ()
    weights = {name: draw_weights(layers, 7) for name, layers in zip(names, shape, strict=False)}
    written = {name: x.tolist() for name, x in weights.items()} | {"valid": valid.tolist()}
    own, other = ([x.tolist() for x in layers] for layers in (student, teacher))
    if kind == "hidden":
        total, count = reference.layer_emd(own, other, projection=MATRIX.tolist(), **written)
    else:
        pairs = ([(x.tolist(), x.flip(-1).tolist()) for x in layers] for layers in (student, teacher))
        total, count = reference.attention_layer_emd(*pairs, HEADS, **written)
    term = distance(kind, student, teacher, valid=valid, **weights)
    assert term.count.item() == count
    assert_close(term.total.item(), total, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("setting", "number"),
    [("SHORT", 0), *(("CPU_CHUNK", n) for n in (1, 6 * TEACHER * 7, 6 * LENGTH * 5, 6 * LENGTH**2))],
)
@both_kinds
def test_neither_pieces_nor_the_way_matter(kind, setting, number, monkeypatch):
    """Costs piece by piece, with a piece left over, or those of long texts, pair by pair."""
    layers, valid = draw(2, 3), make_mask("gaps", LENGTH)
    whole = distance(kind, *layers, valid=valid)
    monkeypatch.setattr(earth_mover, setting, number)
    given = distance(kind, *layers, valid=valid)
    assert_close((given.costs, given.total), (whole.costs, whole.total))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1, 1e-30, 1e30])
def test_flow_is_a_cheapest_one_whatever_the_scale(shape, scale):
    for seed in range(3):
        costs = normal(*shape, seed=seed).abs()
        own, other = draw_weights(shape[0], seed + 10), draw_weights(shape[1], seed + 20)
        flow = transport_flow(costs * scale, own, other)
        least, _ = reference.transport(costs.tolist(), own.tolist(), other.tolist())
        assert (flow >= 0).all()
        assert_close((flow.sum(1), flow.sum(0)), (own, other))
        assert_close((flow * costs).sum().item(), least, rtol=1e-9, atol=1e-12)


def test_float32_weights_are_taken():
    weights = [draw_weights(k, k).float() for k in (12, 24)]
    flow = transport_flow(normal(12, 24, seed=0).abs().float(), *weights)
    assert flow.dtype == torch.float64
    assert_close(flow.sum().item(), 1.0, rtol=1e-12, atol=0)


def test_gradients_are_those_of_all_pairs():
    """The gathered gradient of a layer is the sum over the pairs it moves to."""
    student, teacher = draw(3, 7)
    leaves = [x.requires_grad_() for x in student]
    term = distance("hidden", leaves, teacher)
    squares = [[(x @ MATRIX - y).square().sum() for y in teacher] for x in leaves]
    plain = sum(term.flow[i, j] * square for i, row in enumerate(squares) for j, square in enumerate(row))
    assert_close(term.total, plain)
    assert_close((term.flow * term.costs).sum(), term.mean.detach())
    assert not (term.costs.requires_grad or term.flow.requires_grad)
    assert_close(*(torch.autograd.grad(total, leaves) for total in (term.total, plain)))


def test_zero_when_every_layer_finds_its_equal():
    """The order of the layers does not matter, nor that one is there twice."""
    _, layers = draw(0, 3)
    for others in (layers, [layers[2], layers[0], layers[1]], [x for x in layers for _ in range(2)]):
        assert layer_emd(layers, others).total == 0
    assert distance("attention", layers, layers[::-1]).total < 1e-12
    assert layer_emd(layers, layers[:2]).total > 0


@both_kinds
def test_a_layer_without_weight_has_gradient_zero(kind):
    student, teacher = draw(2, 3)
    leaves = [x.requires_grad_() for x in student]
    term = distance(kind, leaves, teacher, student_weights=torch.tensor([0.0, 1.0]))
    none, some = torch.autograd.grad(term.total, leaves)
    assert (none == 0).all()
    assert (some != 0).any()


@both_kinds
def test_processes_that_share_a_batch_move_by_its_costs(kind):
    """The parts of two add up to the whole; by its own costs each would move another way."""
    student, teacher = draw(2, 3)
    leaves = [(x * torch.linspace(0.2, 3, BATCH)[:, None, None]).requires_grad_() for x in student]
    halves, shared = (slice(0, 1), slice(1, BATCH)), []
    for rows in halves:
        distance(kind, leaves, teacher, rows=rows, across=lambda values: shared.append(values.detach()) or values)
    parts = [distance(kind, leaves, teacher, rows=rows, across=lambda _: sum(shared)) for rows in halves]
    whole, joined = distance(kind, leaves, teacher), parts[0] + parts[1]
    for part in parts:
        assert_close((part.costs, part.flow), (whole.costs, whole.flow))
    assert_close((joined.total, joined.count), (whole.total, whole.count))
    assert_close(*(torch.autograd.grad(term.total, leaves) for term in (joined, whole)))
    assert not torch.allclose(distance(kind, leaves, teacher, rows=halves[0]).costs, whole.costs)


def update(costs, own, other, temperature=1.0):
    return cost_attention(costs, transport_flow(costs, own, other), own, other, temperature=temperature)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("temperature", [0.5, 10.0])
def test_cost_attention_against_the_formula(shape, temperature):
    costs = normal(*shape, seed=1).abs() + 0.1
    weights = draw_weights(shape[0], 2), draw_weights(shape[1], 3)
    flow = transport_flow(costs, *weights)
    for given, d, f, w in zip(
        update(costs, *weights, temperature), (costs, costs.T), (flow, flow.T), weights, strict=True
    ):
        expected = reference.cost_attention(d.tolist(), f.tolist(), w.tolist(), temperature)
        assert_close(given, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_cost_attention_in_the_corners():
    free = torch.tensor([[0.0, 9.0, 9.0], [9.0, 0.0, 9.0], [9.0, 9.0, 5.0]])
    new, _ = update(free, uniform_weights(3), uniform_weights(3))
    assert_close(new, torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))

    # No longer moved, but cheap for one teacher layer: unit costs 1 (its cheapest pair) and 2.
    back, _ = update(torch.tensor([[1.0, 7.0], [2.0, 2.0]]), torch.tensor([0.0, 1.0]), uniform_weights(2))
    assert_close(back[0].item(), 1 / (1 + math.exp(1.5 - 3)))

    own, other = draw_weights(2, 0), draw_weights(2, 1)
    for costs in (torch.zeros(2, 2), *(torch.tensor([[odd, 1.0], [1.0, 1.0]]) for odd in (math.nan, math.inf))):
        assert_close(update(costs, own, other), (own, other))


def test_a_student_that_diverged_shows_in_the_loss():
    """A loss that is not finite names the problem; the solver does not hide it behind an error."""
    student, teacher = draw(2, 3)
    student[0][0, 0, 0] = float("inf")
    assert not distance("hidden", student, teacher).total.isfinite()
