"""A search of shapes: rewards, limits, cuts, and what it refuses; with losses and latencies that are known."""

import io
import json
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from optuna.trial import TrialState
from rich.console import Console

from limbeck.errors import Interrupted, LimbeckError, OutputError, RecipeError, TrainingError
from limbeck.recipe.load import load_recipe
from limbeck.search import architecture
from limbeck.search.architecture import ArchitectureSearch, MeasuringRequest, search_architecture
from limbeck.search.latency import ShapeLatency
from limbeck.search.shape_space import ShapeLimits, ShapePoint, ShapeSizes, pareto_front, shape_points, shape_space
from limbeck.search.workers import worker_key
from tests.support import shape_search
from tests.support.known_search import sign_of_life
from tests.support.models import make_teacher
from tests.support.shape_search import (
    EVERYTHING,
    POINTS,
    SIZES,
    STEPS,
    loss_of,
    make_request,
    reward_of,
    share_of,
)

searched = shape_search


def point(shape):
    return ShapePoint(shape["layers"], shape["hidden"], shape["heads"], shape["ffn"] / shape["hidden"])


def by_state(record, state):
    return [point(shape) for shape in record["shapes"] if shape["state"] == state]


def test_every_shape_has_the_reward_of_its_loss_and_latency(recipe, asked, tmp_path):
    record = search_architecture(make_request(recipe, tmp_path / "out"))
    assert len(record["shapes"]) == 6 and by_state(record, "trained") == asked.tried
    for shape in record["shapes"]:
        assert shape["loss"] == loss_of(point(shape)) and shape["latency_share"] == share_of(point(shape))
        assert shape["reward"] == pytest.approx(reward_of(point(shape)))
        assert shape["steps"] == STEPS
    assert point(record["best"]) == max(asked.tried, key=reward_of)
    places = [(shape["loss"], shape["latency_share"]) for shape in record["shapes"]]
    assert record["front"] == [record["shapes"][index]["trial"] for index in pareto_front(places)]
    json.dumps(record, allow_nan=False)


def test_no_more_are_trained_at_once_than_asked_for_and_none_twice(recipe, asked, tmp_path):
    search_architecture(make_request(recipe, tmp_path / "out", trials=8, batch=3))
    assert [len(batch) for batch in asked.batches] == [3, 3, 2]
    assert len(set(asked.tried)) == 8 and asked.measured == asked.tried


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", "gp"])
def test_a_search_of_everything_finds_the_best_and_ends(recipe, asked, tmp_path, sampler):
    sizes = ShapeSizes((1, 2, 3), (8, 12), (2,), (1, 2))
    request = make_request(recipe, tmp_path / "out", sizes=sizes, trials=99, batch=5, sampler=sampler)
    record = search_architecture(request)
    assert sorted(asked.tried) == sorted(shape_points(sizes))
    assert record["cost"]["trained"] == 12
    assert point(record["best"]) == max(shape_points(sizes), key=reward_of)


def test_shapes_beyond_a_limit_cost_no_training(recipe, asked, tmp_path, study):
    request = make_request(recipe, tmp_path / "out")
    sizes = {p: shape.parameters for p, shape in shape_space(request.proxy.recipe, SIZES).shapes.items()}
    most = sorted(sizes.values())[EVERYTHING // 2]
    limits = ShapeLimits(parameters=most, latency_share=0.3)
    record = search_architecture(make_request(recipe, tmp_path / "out", limits=limits, trials=99))
    small = {p for p in POINTS if sizes[p] <= most}
    assert set(asked.measured) == small and len(asked.measured) == len(small)
    assert set(asked.tried) == {p for p in small if share_of(p) <= 0.3} == set(by_state(record, "trained"))
    refused = {point(shape): shape["reason"] for shape in record["shapes"] if shape["state"] == "refused"}
    for shape, reason in refused.items():
        expected = "parameters" if sizes[shape] > most else "of the teacher's latency"
        assert expected in reason
    pruned = study().get_trials(states=(TrialState.PRUNED,))
    assert {trial.user_attrs["refused"] for trial in pruned if "same_as" not in trial.user_attrs} == set(
        refused.values()
    )


def test_trials_beyond_a_limit_do_not_count(recipe, asked, tmp_path):
    record = search_architecture(make_request(recipe, tmp_path / "out", limits=ShapeLimits(latency_share=0.35)))
    assert record["cost"]["trained"] == 6
    assert asked.tried[0] == ShapePoint(1, 8, 2, 1), "what is least likely to be too slow comes first"
    assert asked.measured.count(asked.tried[0]) == 1


def test_a_latency_limit_that_no_shape_meets_is_refused_before_training(recipe, asked, tmp_path):
    with pytest.raises(RecipeError, match=r"No shape is within --max-latency-share 0\.1: the smallest, 1x8, 2 heads"):
        search_architecture(make_request(recipe, tmp_path / "out", limits=ShapeLimits(latency_share=0.1)))
    assert not asked.batches
    # Another limit may be tried in the same folder.
    search_architecture(make_request(recipe, tmp_path / "out", limits=ShapeLimits(latency_share=0.3)))
    assert len(asked.tried) == 6


def test_a_finished_search_goes_on_with_more_trials(recipe, asked, tmp_path):
    first = search_architecture(make_request(recipe, tmp_path / "out"))
    assert search_architecture(make_request(recipe, tmp_path / "out"))["shapes"] == first["shapes"]
    assert len(asked.tried) == 6
    more = search_architecture(make_request(recipe, tmp_path / "out", trials=9))
    assert more["shapes"][:6] == first["shapes"] and len(asked.tried) == len(set(asked.tried)) == 9


def test_a_shape_that_diverges_counts_and_has_no_reward(recipe, asked, tmp_path):
    asked.diverges = {p for p in POINTS if p.layers == 1}
    record = search_architecture(make_request(recipe, tmp_path / "out", trials=99))
    assert set(by_state(record, "diverged")) == asked.diverges
    assert len(asked.tried) == EVERYTHING and record["cost"]["failed"] == 0


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


def test_shapes_that_were_shown_are_kept_when_a_later_one_fails(recipe, asked, tmp_path, monkeypatch, study):
    class LossThatStops(shape_search.FakeLoss):
        def __call__(self, student):
            if len(asked.batches) == 1 and student == asked.batches[0][1]:
                raise KeyboardInterrupt
            return super().__call__(student)

    console = Console(record=True, width=200, file=io.StringIO())
    with monkeypatch.context() as patch:
        patch.setattr(architecture, "LastLayerLoss", LossThatStops)
        with pytest.raises(Interrupted):
            search_architecture(make_request(recipe, tmp_path / "out"), console)
    told = [trial.user_attrs["shape"] for trial in study().trials if trial.value is not None]
    first, second = asked.batches[0]
    assert told == [str(first)]
    assert str(second) not in console.export_text()
    search_architecture(make_request(recipe, tmp_path / "out"))
    assert first not in asked.batches[1] and second in asked.batches[1]


def test_a_shape_that_another_worker_has_is_left_to_it(recipe, asked, tmp_path, study):
    search_architecture(make_request(recipe, tmp_path / "out", trials=1, batch=1))
    request = make_request(recipe, tmp_path / "out", trials=EVERYTHING, batch=4)
    shared = study()
    trial = searched.leave_running(shared, request)
    trial.set_user_attr("worker", "alive")
    shared.set_user_attr(worker_key("alive"), sign_of_life())
    taken = ShapePoint(**trial.params)

    def tell(points):
        if len(asked.batches) == 3:
            trial.set_user_attr("loss", loss_of(taken))
            trial.set_user_attr("latency", asdict(ShapeLatency(share_of(taken), 1.0, 10.0, 1)))
            shared.tell(trial, reward_of(taken))

    asked.before = tell
    record = search_architecture(request)
    assert taken not in asked.tried and len(asked.tried) == EVERYTHING - 1
    assert record["cost"]["trained"] == EVERYTHING


def test_a_study_of_other_sizes_limits_or_measurements_is_refused(recipe, asked, tmp_path):
    search_architecture(make_request(recipe, tmp_path / "out"))
    for change, key in (
        ({"sizes": ShapeSizes((1, 2), (8, 12), (2,), (1,))}, "space.layers"),
        ({"limits": ShapeLimits(parameters=10**6)}, "limit.parameters"),
        ({"limits": ShapeLimits(latency_share=1.0)}, "limit.latency_share"),
    ):
        with pytest.raises(OutputError, match=f"was made for another {key}"):
            search_architecture(make_request(recipe, tmp_path / "out", **change))


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_only_what_it_was_training(recipe, asked, files, tmp_path, study):
    log = tmp_path / "log"
    command = [sys.executable, "-m", shape_search.__name__, *map(str, (*files, tmp_path / "out", log))]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as worker:
        until = time.monotonic() + 60
        while not log.exists() or len(log.read_text().splitlines()) < 2:
            assert time.monotonic() < until and worker.poll() is None
            time.sleep(0.05)
        worker.send_signal(signal.SIGKILL)
    first, killed = ([tuple(p) for p in json.loads(line)] for line in log.read_text().splitlines())
    states = [trial.state.name for trial in study().trials]
    assert states.count("COMPLETE") == states.count("RUNNING") == 2
    record = search_architecture(make_request(recipe, tmp_path / "out"))
    assert asked.batches[0] == killed and not set(first) & set(asked.tried)
    assert record["cost"]["trained"] == 6 and record["cost"]["failed"] == 2


# What is refused before anything is trained.


def sizes(**changes):
    usual = {"layers": (1, 2), "hidden": (8, 16), "heads": (2,), "ffn": (2,)}
    return ShapeSizes(**{**usual, **changes})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "--trials 0 leaves nothing to do; give 1 or more"),
        ({"batch": 0}, "--batch 0 leaves nothing to do"),
        ({"sampler": "cmaes"}, r"Unknown sampler 'cmaes'\. Known: gp, nsga2, random, tpe"),
        ({"limits": ShapeLimits(parameters=100)}, "No shape has at most 100 parameters: the smallest, 1x8"),
        ({"limits": ShapeLimits(latency_share=0.0)}, "--max-latency-share 0 is no share"),
        ({"limits": ShapeLimits(latency_share=float("nan"))}, "--max-latency-share nan is no share"),
        ({"limits": ShapeLimits(latency_share=0.01)}, "No shape is within --max-latency-share 0.01: the smallest"),
        ({"measuring": MeasuringRequest("gpu")}, "There is no device 'gpu' here"),
        ({"measuring": MeasuringRequest("cpu", length=129)}, "--measure-length 129 is longer than the 128 tokens"),
        ({"measuring": MeasuringRequest("cpu", batch=0)}, "--measure-batch 0 leaves nothing to do"),
        ({"sizes": sizes(heads=(2, 7))}, "--heads 7 is in no shape that can be trained: 7 heads do not divide"),
        ({"sizes": sizes(layers=(2, 6))}, "--layers 6 is in no shape .*the student has 6 layers and the teacher 3"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_mistakes_in_what_is_asked(recipe, asked, tmp_path, options, message):
    with pytest.raises(RecipeError, match=message) as caught:
        search_architecture(make_request(recipe, tmp_path / "out", **{"sizes": sizes(), **options}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (["stages.0.training={num_train_epochs: 1}"], {"prune": True}, "The recipe counts epochs, .*--no-prune"),
        (
            ["stages=[{name: a, method: hidden_states}, {name: b, method: minilmv2}]"],
            {"prune": True},
            "The recipe has 2 stages, and candidates are stopped early only where it has one; give --no-prune",
        ),
        (["stages.0.student={shape: 2x16h2}"], {}, "no stage trains the recipe's student"),
        (["student.initialise.checkpoint=elsewhere"], {}, "checkpoint is a model of one shape"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_recipes_that_cannot_be_searched(recipe, asked, tmp_path, changes, options, message):
    with pytest.raises(LimbeckError, match=message):
        changed = load_recipe(recipe, changes)
        search_architecture(make_request(changed, tmp_path / "out", **{"sizes": sizes(), **options}))


def test_students_deeper_than_the_teacher_are_refused(recipe, asked, tmp_path):
    # The usual mapping of this method would take any depth.
    stage = {**recipe["stages"][0], "method": {"name": "minilmv2", "relation_heads": 4}}
    request = make_request({**recipe, "stages": [stage]}, tmp_path / "out", sizes=sizes(layers=(2, 3, 6)))
    with pytest.raises(RecipeError, match="^--layers 6 is deeper than the teacher, which has 3 layers; list at most 3"):
        search_architecture(request)


def test_texts_are_as_long_as_the_teacher_takes_where_no_length_is_given(recipe, asked, tmp_path):
    short = make_teacher(tmp_path, "bert", layers=3, hidden=16, heads=4, ffn=32, max_position_embeddings=64)
    for teacher, length in ((short, 64), (recipe["teacher"]["model"], 128)):
        changed = recipe | {"teacher": {"model": str(teacher)}}
        request = make_request(changed, tmp_path / "out", sizes=sizes(), measuring=MeasuringRequest("cpu"))
        assert ArchitectureSearch(request).latency.length == length
