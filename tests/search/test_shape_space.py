"""Which shapes can be searched, their parameters, latencies and rewards, and the samplers that choose among them."""

import dataclasses
import math

import numpy as np
import optuna
import pytest
import torch

from limbeck.errors import RecipeError
from limbeck.evaluation import count_parameters
from limbeck.evaluation.latency import PassTime, time_passes
from limbeck.models.students import build_student
from limbeck.recipe.load import load_recipe
from limbeck.search import latency, pareto, requests, shape_reward, shape_samplers, shape_space
from limbeck.search.latency import FEWEST_PASSES
from limbeck.search.requests import ShapeSizes
from tests.support.shape_search import SIZES, recipe_data, write_teacher
from tests.support.word_models import tiny_bert


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    (folder / "some.txt").write_text("Some text.\n", encoding="utf-8")
    return load_recipe(recipe_data(write_teacher(folder), folder / "some.txt"))


def sizes(**changes):
    return dataclasses.replace(SIZES, **changes)


def test_the_space_is_the_product_of_what_can_be_trained(recipe):
    space = shape_space.divide_shapes(recipe, sizes(heads=(2, 3), ffn=(1, 2)))
    everything = {
        shape_space.ShapePoint(s, h, a, f) for s in (1, 2, 3) for h in (8, 12, 16) for a in (2, 3) for f in (1, 2)
    }
    legal = {point for point in everything if point.hidden % point.heads == 0}
    assert set(space.shapes) == legal and set(space.impossible) == everything - legal
    assert "3 heads do not divide" in space.impossible[shape_space.ShapePoint(1, 8, 3, 1)]
    shape = space.shapes[shape_space.ShapePoint(3, 12, 3, 2)]
    result = shape.plan.student
    assert (result.layers, result.hidden, result.heads, result.ffn) == (3, 12, 3, 24)
    counts = count_parameters(build_student(shape.plan.student_config, seed=0))
    assert shape.parameters == counts.embedding + counts.transformer
    changed = shape.plan.recipe.model_dump() | {"student": recipe.student.model_dump()}
    assert changed == recipe.model_dump(), "a shape is the recipe with that student"


def test_ffn_widths_are_rounded_and_factorised_embeddings_stay(recipe):
    assert shape_space.ShapePoint(1, 384, 12, 8 / 3).ffn_width == 1024
    factorised = load_recipe(recipe, ["student.shape={layers: 2, hidden: 8, heads: 2, embedding: 4}"])
    assert shape_space.with_shape(factorised, shape_space.ShapePoint(1, 12, 2, 2)).student.shape.embedding == 4
    assert shape_space.with_shape(recipe, shape_space.ShapePoint(1, 12, 2, 2)).student.shape.embedding is None


def test_a_depth_that_only_some_shapes_may_have_leaves_the_others_out(recipe):
    listed = load_recipe(recipe, ["student.initialise.layers=[1, 3]"])
    assert {point.layers for point in shape_space.divide_shapes(listed, sizes(layers=(2,), hidden=(8,))).shapes} == {2}


@pytest.mark.parametrize(
    ("text", "count"), [("30M", 30_000_000), ("1.5b", 1_500_000_000), (" 250 k", 250_000), ("1234", 1234)]
)
def test_counts_have_letters(text, count):
    assert requests.parse_count("--max-parameters", text) == count
    for other in ("", "M", "-3M", "0", "30 million", "1e6", "nan"):
        with pytest.raises(RecipeError, match="--max-parameters '.*' is not a number of parameters"):
            requests.parse_count("--max-parameters", other)


def test_reward_is_equation_12():
    assert shape_reward(0.3, 5.41, 64.91) == pytest.approx(0.7 * (5.41 / (0.6 * 64.91)) ** -0.06, rel=1e-12)
    assert shape_reward(0.0, 6.0, 10.0) == 1.0
    falling = [shape_reward(*cost, 10.0) for cost in ((0.2, 3.0), (0.2, 6.0), (0.3, 6.0))]
    assert falling == sorted(set(falling), reverse=True)
    for student, teacher in [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (math.nan, 1.0)]:
        with pytest.raises(ValueError, match="above 0"):
            shape_reward(0.1, student, teacher)


def naive_front(points):
    def beats(a, b):
        return a[0] <= b[0] and a[1] <= b[1] and a != b

    numbers = [point for point in points if not any(math.isnan(value) for value in point)]
    on = [i for i, p in enumerate(points) if p in numbers and not any(beats(q, p) for q in numbers)]
    return sorted(on, key=lambda i: points[i][1])


def test_front_is_what_no_point_beats():
    random = np.random.default_rng(1)
    for size in range(40):
        points = [tuple(point) for point in random.integers(0, 8, size=(size, 2)).astype(float).tolist()]
        points += [(math.nan, 0.0), (0.0, math.nan)] * (size % 2)
        front = pareto.pareto_front(points)
        assert sorted(front) == sorted(naive_front(points))
        assert [points[i][1] for i in front] == sorted(points[i][1] for i in front)


# Samplers: what a trial draws depends on the seed and its number, not on who asks.

LISTED = ShapeSizes(layers=(2, 3, 4, 6), hidden=(192, 312, 384), heads=(12,), ffn=(4,))
SPACE = shape_space.ShapeSpace(LISTED, dict.fromkeys(shape_space.shape_points(LISTED)), {})
TRIALS = 14


def propose(name, seed, *, workers=1):
    """The points of a study whose trials are asked for by several samplers in turn; 6x384 is the best."""
    study = optuna.create_study(direction="maximize")
    samplers = [shape_samplers.make_sampler(name, seed, SPACE) for _ in range(workers)]
    result = []
    for number in range(TRIALS):
        study.sampler = samplers[number % workers]
        trial = study.ask()
        sizes = dataclasses.asdict(LISTED).items()
        point = tuple(trial.suggest_categorical(key, values) for key, values in sizes)[:2]
        study.tell(trial, point[0] + point[1] / 1000)
        result.append(point)
    return result


@pytest.mark.parametrize("name", requests.SAMPLERS)
def test_several_workers_propose_what_one_would(name):
    alone = propose(name, seed=1)
    assert propose(name, seed=1, workers=3) == alone
    assert len(set(alone)) > 4
    if name in ("tpe", "gp", "kd_nas"):  # They model the rewards, and come to prefer the better shapes.
        later = [layers + hidden / 1000 for layers, hidden in alone[-5:]]
        everything = [layers + hidden / 1000 for layers in (2, 3, 4, 6) for hidden in (192, 312, 384)]
        assert sum(later) / len(later) > sum(everything) / len(everything)


def test_seeds_and_trials_draw_differently():
    runs = [propose("random", seed) for seed in range(4)]
    assert len({tuple(run) for run in runs}) == 4
    assert runs[0][1:] != runs[1][:-1]


# Latency: the least disturbed pass is what is compared, on a machine that is busy or idle.

CALM_STUDENT = [PassTime(0.01, 0.01)] * FEWEST_PASSES


@pytest.mark.parametrize(
    ("teacher_by_attempt", "student", "expected"),
    [
        # A long pass is mostly interrupted, and judged by the one that was not.
        ([[PassTime(0.2 + n, 0.1) for n in range(FEWEST_PASSES)] + [PassTime(0.1, 0.1)]], CALM_STUDENT,
         (100, 10, False)),
        # A disturbed measurement is made again.
        ([[PassTime(0.2, 0.1)], [PassTime(0.11, 0.1)]], CALM_STUDENT, (110, 10, False)),
        # Passes of earlier attempts count: the shortest of both is not the second's.
        ([[PassTime(0.2, 0.1)], [PassTime(0.3, 0.3)], [PassTime(0.15, 0.15)]], CALM_STUDENT, (150, 10, False)),
        # Where every attempt is disturbed, processor times are compared.
        ([[PassTime(0.2, 0.1)]] * 3, CALM_STUDENT, (100, 10, True)),
        # A pass too short for the processor's clock has its wall time.
        ([[PassTime(0.2, 0.1)]] * 3, [PassTime(0.01, 0.0)], (100, 10, True)),
        # Without a processor clock wall times stand.
        ([[PassTime(0.2)]], [PassTime(0.1)], (200, 100, False)),
    ],
)  # fmt: skip
def test_the_least_disturbed_pass_counts(monkeypatch, teacher_by_attempt, student, expected):
    attempts = iter(teacher_by_attempt)
    monkeypatch.setattr(latency, "time_passes", lambda *_, **__: {"teacher": next(attempts), "student": student})
    model = tiny_bert(1)
    measured = latency.compare_latency(model, model, torch.ones(1, 4, dtype=torch.long), seconds=0)
    assert (measured.teacher_ms, measured.student_ms, measured.busy) == pytest.approx(expected)
    assert not list(attempts), "no attempt more, and none less"


def test_short_passes_are_not_repeated_for_ever():
    calls = []
    time_passes(
        {"model": lambda **_: calls.append(1)}, torch.ones(1, 4, dtype=torch.long), seconds=60, warmup=2, most=7
    )
    assert len(calls) == 2 + 7


def test_a_pass_is_timed_by_both_clocks():
    models = {"a": tiny_bert(2).eval(), "b": tiny_bert(1).eval(), "c": tiny_bert(1).eval()}
    passes = time_passes(models, torch.ones(3, 16, dtype=torch.long), seconds=0)
    assert list(passes) == ["a", "b", "c"]
    assert all(0 < one_pass.cpu <= one_pass.wall * 1.05 for one_pass in passes["a"])
