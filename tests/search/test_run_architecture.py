"""A search of shapes from request to record, with losses and latencies that are known."""

import json
import statistics

import pytest
import yaml
from optuna.trial import TrialState

from limbeck.errors import RecipeError, TrainingError
from limbeck.search.architecture import search_architecture
from limbeck.search.shape_space import ShapeLimits, ShapePoint, ShapeSizes, pareto_front, shape_points, shape_space
from tests.support import shape_search
from tests.support.shape_search import (
    EVERYTHING,
    POINTS,
    SIZES,
    STEPS,
    load_study,
    loss_of,
    make_request,
    reward_of,
    share_of,
)

files, recipe, asked = shape_search.files, shape_search.recipe, shape_search.asked


def point(shape):
    return ShapePoint(shape["layers"], shape["hidden"], shape["heads"], shape["ffn"] / shape["hidden"])


def by_state(record, state):
    return [point(shape) for shape in record["shapes"] if shape["state"] == state]


def test_every_shape_has_the_reward_of_its_loss_and_latency(recipe, asked, tmp_path):
    record = search_architecture(make_request(recipe, tmp_path / "out"))
    assert len(record["shapes"]) == 6 and by_state(record, "trained") == asked.shapes
    for shape in record["shapes"]:
        assert shape["loss"] == loss_of(point(shape)) and shape["latency_share"] == share_of(point(shape))
        assert shape["reward"] == pytest.approx(reward_of(point(shape)))
        assert shape["steps"] == STEPS
    assert point(record["best"]) == max(asked.shapes, key=reward_of)
    places = [(shape["loss"], shape["latency_share"]) for shape in record["shapes"]]
    assert record["front"] == [record["shapes"][index]["trial"] for index in pareto_front(places)]
    json.dumps(record, allow_nan=False)


def test_what_is_found_is_the_recipe_with_another_shape(recipe, asked, tmp_path):
    record = search_architecture(make_request(recipe, tmp_path / "out", steps=7))
    assert asked.steps == {7}, "the proxy's steps"
    found = yaml.safe_load(yaml.safe_dump(record["recipe"]))
    best = record["best"]
    assert found["student"].pop("shape") == {name: best[name] for name in ("layers", "hidden", "heads", "ffn")}
    assert found == {**recipe, "student": {}}


def test_no_more_are_trained_at_once_than_asked_for_and_none_twice(recipe, asked, tmp_path):
    search_architecture(make_request(recipe, tmp_path / "out", trials=8, batch=3))
    assert [len(batch) for batch in asked.batches] == [3, 3, 2]
    assert len(set(asked.shapes)) == 8 and asked.measured == asked.shapes


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", "gp"])
def test_a_search_of_everything_finds_the_best_and_ends(recipe, asked, tmp_path, sampler):
    sizes = ShapeSizes((1, 2, 3), (8, 12), (2,), (1, 2))
    request = make_request(recipe, tmp_path / "out", sizes=sizes, trials=99, batch=5, sampler=sampler)
    record = search_architecture(request)
    assert sorted(asked.shapes) == sorted(shape_points(sizes))
    assert record["cost"]["trained"] == 12
    assert point(record["best"]) == max(shape_points(sizes), key=reward_of)


def test_shapes_beyond_a_limit_cost_no_training(recipe, asked, tmp_path):
    request = make_request(recipe, tmp_path / "out")
    sizes = {p: shape.parameters for p, shape in shape_space(request.proxy.recipe, SIZES).shapes.items()}
    most = sorted(sizes.values())[EVERYTHING // 2]
    limits = ShapeLimits(parameters=most, latency_share=0.3)
    record = search_architecture(make_request(recipe, tmp_path / "out", limits=limits, trials=99))
    small = {p for p in POINTS if sizes[p] <= most}
    assert set(asked.measured) == small and len(asked.measured) == len(small)
    assert set(asked.shapes) == {p for p in small if share_of(p) <= 0.3} == set(by_state(record, "trained"))
    refused = {point(shape): shape["reason"] for shape in record["shapes"] if shape["state"] == "refused"}
    for shape, reason in refused.items():
        expected = "parameters" if sizes[shape] > most else "of the teacher's latency"
        assert expected in reason
    pruned = load_study(tmp_path / "out").get_trials(states=(TrialState.PRUNED,))
    assert {trial.user_attrs["refused"] for trial in pruned if "same_as" not in trial.user_attrs} == set(
        refused.values()
    )


def test_trials_beyond_a_limit_do_not_count(recipe, asked, tmp_path):
    record = search_architecture(make_request(recipe, tmp_path / "out", limits=ShapeLimits(latency_share=0.35)))
    assert record["cost"]["trained"] == 6
    assert asked.shapes[0] == ShapePoint(1, 8, 2, 1), "what is least likely to be too slow comes first"
    assert asked.measured.count(asked.shapes[0]) == 1


def test_a_latency_limit_that_no_shape_meets_is_refused_before_training(recipe, asked, tmp_path):
    with pytest.raises(RecipeError, match=r"No shape is within --max-latency-share 0\.1: the smallest, 1x8, 2 heads"):
        search_architecture(make_request(recipe, tmp_path / "out", limits=ShapeLimits(latency_share=0.1)))
    assert not asked.batches
    # Another limit may be tried in the same folder.
    search_architecture(make_request(recipe, tmp_path / "out", limits=ShapeLimits(latency_share=0.3)))
    assert len(asked.shapes) == 6


def test_a_finished_search_goes_on_with_more_trials(recipe, asked, tmp_path):
    first = search_architecture(make_request(recipe, tmp_path / "out"))
    assert search_architecture(make_request(recipe, tmp_path / "out"))["shapes"] == first["shapes"]
    assert len(asked.shapes) == 6
    more = search_architecture(make_request(recipe, tmp_path / "out", trials=9))
    assert more["shapes"][:6] == first["shapes"] and len(asked.shapes) == len(set(asked.shapes)) == 9


def test_a_shape_that_diverges_counts_and_has_no_reward(recipe, asked, tmp_path):
    asked.diverges = {p for p in POINTS if p.layers == 1}
    record = search_architecture(make_request(recipe, tmp_path / "out", trials=99))
    assert set(by_state(record, "diverged")) == asked.diverges
    assert len(asked.shapes) == EVERYTHING and record["cost"]["failed"] == 0


def test_a_search_in_which_all_diverge_says_so(recipe, asked, tmp_path):
    asked.diverges = set(POINTS)
    with pytest.raises(TrainingError, match="No shape came to a loss: its loss is no finite number; lower"):
        search_architecture(make_request(recipe, tmp_path / "out"))


def test_hopeless_shapes_are_cut_and_the_best_are_not(recipe, asked, tmp_path):
    record = search_architecture(make_request(recipe, tmp_path / "out", trials=99, prune=True))
    assert record["cuts"] == [10, 20]
    cut = [shape for shape in record["shapes"] if shape["state"] == "cut"]
    assert cut and all(shape["steps"] == 10 and shape["loss"] is None for shape in cut)
    rewards: list[float] = []
    for batch in asked.batches:  # the shapes of a batch are told together
        for shape in (shape for shape in record["shapes"] if point(shape) in batch):
            assert shape["rewards_on_the_way"]["10"] == pytest.approx(reward_of(point(shape)))
            hopeless = len(rewards) >= 5 and reward_of(point(shape)) < statistics.median(rewards)
            assert (shape["state"] == "cut") == hopeless, shape
            assert (shape["reason"] is not None) == hopeless
        rewards += [reward_of(p) for p in batch if p in by_state(record, "trained")]
    assert point(record["best"]) == max(POINTS, key=reward_of)
