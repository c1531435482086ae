"""What a student's last layer has of its teacher's, beside slow references."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from limbeck.comparison.last_layers import LastLayers, common_relation_heads
from limbeck.models.families import shape_of
from tests.support.equation_6 import hidden_states_loss
from tests.support.models import tiny_batch, tiny_model


@pytest.fixture(scope="module")
def batches():
    return [tiny_batch(seed=seed, rows=12) for seed in range(6)]


#: Of the student, which has 24 relation heads in common with its teacher.
SHAPES = [shape_of(tiny_model(hidden=24, heads=4).config)]


@pytest.fixture(scope="module")
def models():
    return tiny_model(layers=2, hidden=24, heads=4, seed=1).double(), tiny_model(seed=2).double()


def last_hidden(model, batches):
    with torch.no_grad():
        states = [model(**batch).last_hidden_state[batch["attention_mask"].bool()] for batch in batches]
    return torch.cat(states)


def relations(model, batch, heads):
    """Softmax of scaled products of each relation head of queries, keys and values of the last block."""
    layer = model.encoder.layer[-1].attention.self
    with torch.no_grad():
        hidden = model(**batch, output_hidden_states=True).hidden_states[-2]
        parts = [part(hidden) for part in (layer.query, layer.key, layer.value)]
    for vectors in parts:
        vectors = vectors.unflatten(-1, (heads, -1)).transpose(1, 2)
        scores = vectors @ vectors.transpose(-1, -2) / vectors.shape[-1] ** 0.5
        yield scores.masked_fill(~batch["attention_mask"].bool()[:, None, None], -torch.inf).softmax(-1)


def test_relations_are_the_mean_divergence_from_the_teacher(models, batches):
    student, teacher = models
    divergence = LastLayers(teacher, batches, SHAPES).compare(student).divergence
    total = 0.0
    rows = 0
    for batch in batches:
        for learned, taught in zip(relations(student, batch, 24), relations(teacher, batch, 24), strict=True):
            # KL(teacher || student) of each row of a relation; where the teacher gives 0, a term is 0.
            differences = taught.log() - learned.clamp(min=1e-300).log()
            terms = torch.where(taught > 0, taught * differences, 0).sum(-1)
            valid = batch["attention_mask"].bool()[:, None].expand_as(terms)
            total += float(terms[valid].sum())
            rows += int(valid.sum())
    assert divergence == pytest.approx(total / rows, rel=1e-5)

    layers = LastLayers(teacher, batches, SHAPES, keep_streams=True)
    assert layers.compare(student) == (pytest.approx(divergence), None)
    assert layers.uniform > 0


def test_explained_is_a_ridge_regression_on_other_rows(models, batches):
    thirds = [batches[0:2], batches[2:4], batches[4:6]]
    (x1, x2, x3), (y1, y2, y3) = ([last_hidden(model, part).numpy() for part in thirds] for model in models)

    def score(x, y, tested, wanted, penalty):
        alpha = penalty * ((x - x.mean(0)) ** 2).sum(0).mean()
        predicted = Ridge(alpha=alpha).fit(x, y).predict(tested)
        return r2_score(wanted, predicted, multioutput="variance_weighted")

    scores = {10.0**power: score(x1, y1, x2, y2, 10.0**power) for power in range(-4, 3)}
    best = max(scores, key=scores.get)
    expected = score(np.concatenate([x1, x2]), np.concatenate([y1, y2]), x3, y3, best)
    explained = LastLayers(models[1], batches, SHAPES).compare(models[0]).explained
    assert 1e-4 < best < 100, "neither end of the range, so that choosing is tested"
    assert explained == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("mapping", [{2: [4]}, {1: [2, 3], 2: [4]}], ids=["last", "several"])
def test_hidden_states_loss_is_equation_6_under_maps_of_other_rows(models, batches, mapping):
    student, teacher = models
    expected = hidden_states_loss(student, teacher, [batches[0:2], batches[2:4], batches[4:6]], mapping)
    assert LastLayers(teacher, batches, SHAPES).hidden_states_loss(student, mapping) == pytest.approx(
        expected, rel=1e-9
    )


def test_reading_leaves_gradients_on(models, batches):
    layers = LastLayers(models[1], batches, SHAPES)
    streams = layers._read_last(models[0])
    next(streams)
    assert torch.is_grad_enabled()


def test_two_batches_leave_nothing_to_measure_a_map_on(models, batches):
    assert LastLayers(models[1], batches[:2], SHAPES).compare(models[0]).explained is None


def test_heads_are_the_same_for_all_students():
    teacher = shape_of(tiny_model(hidden=48, heads=4).config)
    students = [shape_of(tiny_model(hidden=hidden, heads=4).config) for hidden in (24, 32)]
    assert common_relation_heads(teacher, students[:1]) == 24
    assert common_relation_heads(teacher, students) == 8
