"""A search of teacher layers: successive halving, its record, and a search that trains."""

import itertools
import json
import math

import pytest
from optuna.trial import TrialState
from rich.console import Console

from limbeck.errors import Interrupted, RecipeError, TrainingError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search import rungs, teacher_layer, work
from limbeck.search.held_out_scores import LAYER_SCORES, HeldOutScores
from limbeck.search.searched_recipe import with_option
from limbeck.search.worker_signs import worker_key
from limbeck.training.proxy import Proxy
from tests.support import teacher_layer_search as searched
from tests.support.known_search import sign_of_life
from tests.support.teacher_layer_search import make_request


def test_a_search_that_trains(recipe, tmp_path):
    record = teacher_layer.search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert record["rungs"] == [{"candidates": 4, "end": 2}, {"candidates": 2, "end": 6}]
    rows = record["layers"]
    assert sorted(row["layer"] for row in rows) == [1, 2, 3, 4] and [row["rank"] for row in rows] == [1, 2, 3, 4]
    assert [row["steps"] for row in rows] == [6, 6, 2, 2]
    assert [row["state"] for row in rows] == ["trained", "trained", "cut", "cut"]
    first = {row["layer"]: row["scores"][0]["score"] for row in rows}
    assert {row["layer"] for row in rows[:2]} == set(sorted(first, key=first.get)[2:])
    assert rows[0]["scores"][-1]["score"] >= rows[1]["scores"][-1]["score"]
    # Trained alone, without rounds or neighbours, the best comes to the same scores and loss.
    plan = plan_run(with_option(load_recipe(recipe), "teacher_layer", rows[0]["layer"]))
    proxy = Proxy(plan, console=Console(quiet=True))
    [alone] = proxy.train([plan])
    scores = HeldOutScores(proxy, LAYER_SCORES)
    result, last = scores.measure(alone.student, plan, "alone"), rows[0]["scores"][-1]
    assert last["step"] == 6 and rows[0]["own_loss"] == pytest.approx(alone.held_out["loss"], rel=1e-5)
    assert {name: last[name] for name in LAYER_SCORES} == pytest.approx(result, rel=1e-3)
    assert last["score"] == pytest.approx(sum(result.values()) / 2, rel=1e-3)
    json.dumps(record, allow_nan=False)


def test_candidates_are_trials_of_a_study(recipe, calls, tmp_path, study):
    teacher_layer.search_teacher_layer(make_request(recipe, tmp_path / "out", halving=None))
    trials = study().trials
    assert [trial.params for trial in trials] == [{"teacher_layer": layer} for layer in (1, 2, 3, 4)]
    assert [trial.value for trial in trials] == [15.0, 30.0, 45.0, 60.0]
    assert trials[3].intermediate_values == {6: 60.0}


def test_another_process_at_work_is_waited_for(recipe, calls, tmp_path, monkeypatch, study):
    calls.before = lambda layers: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(Interrupted):
        teacher_layer.search_teacher_layer(make_request(recipe, tmp_path / "out"))
    shared = study()
    trial = searched.leave_running(shared, None)
    trial.set_user_attr("worker", "alive")
    shared.set_user_attr(worker_key("alive"), sign_of_life())
    waits = []
    sleep = work.time.sleep

    def wait(seconds):
        if seconds == 0.25:
            waits.append(seconds)
        else:  # a lock
            sleep(seconds)
        if len(waits) == 3:
            result = {"layers": [{"layer": 2, "steps": 6, "scores": []}], "seconds": 1.0, "created": "then"}
            shared.set_user_attr("result", result)

    monkeypatch.setattr(work.time, "sleep", wait)
    record = teacher_layer.search_teacher_layer(make_request(recipe, tmp_path / "out"), poll_seconds=0.25)
    assert waits == [0.25] * 3 and not calls.batches
    assert record["best"]["layer"] == 2 and record["created"] == "then"


def test_a_search_in_which_all_diverge_says_so(recipe, calls, tmp_path, study):
    calls.diverges = {1, 2, 3, 4}
    with pytest.raises(TrainingError, match="Every candidate diverged, so no layer can be recommended"):
        teacher_layer.search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert {trial.state for trial in study().trials} == {TrialState.FAIL}


@pytest.fixture(scope="module")
def deep(files, tmp_path_factory):
    """A recipe of eight teacher layers, whose rounds end after 10, 30 and 70 steps."""
    teacher = searched.write_teacher(tmp_path_factory.mktemp("deep"), layers=8)
    return load_recipe(searched.recipe_data(teacher, files[1]), ["stages.0.training.max_steps=70"])


@pytest.mark.parametrize(
    ("scores", "diverges", "ranking", "steps"),
    [
        # By layer its score in each round: the lower half is dropped.
        (lambda n, turn: n + turn / 10, {}, [8, 7, 6, 5, 4, 3, 2, 1], [10] * 4 + [30] * 2 + [70] * 2),
        # The score at the end of a round counts, and not an earlier one.
        (lambda n, turn: n if turn else 9 - n, {}, [4, 3, 2, 1, 5, 6, 7, 8], [30, 30, 70, 70, 10, 10, 10, 10]),
        (
            lambda n, turn: math.nan if n in (3, 7) else n,
            {},
            [8, 6, 5, 4, 2, 1, 3, 7],
            [10, 10, 10, 30, 30, 70, 10, 70],
        ),
        # Who diverges before or after the first round takes nobody's place.
        (lambda n, turn: n, {8: 0, 6: 1}, [7, 5, 4, 3, 2, 1, 6, 8], [10, 10, 10, 30, 70, 30, 70, 1]),
    ],
    ids=["lower half", "at the end", "no number", "diverged"],
)
def test_the_lower_half_is_dropped_after_every_round(
    deep, calls, monkeypatch, tmp_path, study, scores, diverges, ranking, steps
):
    calls.diverges |= {layer for layer, turn in diverges.items() if turn == 0}
    turns = {layer: itertools.count() for layer in range(1, 9)}

    class Scores(searched.FakeScores):
        def measure(self, layer, plan, name):
            if diverges.get(layer):
                calls.diverges.add(layer)
            value = scores(layer, next(turns[layer]))
            return {"agreement": value + 1, "explained": value - 1}

    monkeypatch.setattr(searched.teacher_layer.held_out_scores, "HeldOutScores", Scores)
    record = teacher_layer.search_teacher_layer(make_request(deep, tmp_path / "out"))
    rows = {row["layer"]: row for row in record["layers"]}
    assert [row["layer"] for row in record["layers"]] == ranking
    assert [rows[layer]["steps"] for layer in range(1, 9)] == steps
    for layer, row in rows.items():
        state = "diverged" if layer in diverges else "cut" if row["steps"] < 70 else "trained"
        assert row["state"] == state and row["own_loss"] == 0.5
        first = scores(layer, 0)
        if row["scores"]:
            expected = [None if math.isnan(value) else value for value in (first, first + 1, first - 1)]
            assert list(row["scores"][0].values()) == [10, *expected]
    assert record["cost"]["steps"] == sum(steps)
    states = {"cut": TrialState.PRUNED, "trained": TrialState.COMPLETE, "diverged": TrialState.FAIL}
    assert [trial.state for trial in study().trials] == [states[rows[layer]["state"]] for layer in range(1, 9)]


def test_steps_in_all_are_divided_by_successive_halving(recipe):
    search = teacher_layer.TeacherLayerSearch(make_request(recipe, None, steps_total=80))
    assert search.rounds == [(4, 10), (2, 30)]
    assert {plan.recipe.stages[0].training["max_steps"] for plan in search.plans.values()} == {30}
    flat = teacher_layer.TeacherLayerSearch(make_request(recipe, None, steps_total=80, halving=None))
    assert {plan.recipe.stages[0].training["max_steps"] for plan in flat.plans.values()} == {20}
    epochs = load_recipe(recipe, ["stages.0.training={num_train_epochs: 1}"])
    assert teacher_layer.TeacherLayerSearch(make_request(epochs, None, halving=None)).rounds == []


@pytest.mark.parametrize(("candidates", "factor"), [(8, 2), (12, 2), (24, 3), (2, 2), (3, 2), (7, 4)])
@pytest.mark.parametrize("steps", [100, 20_000])
def test_a_training_is_divided_so_that_rounds_cost_the_same(candidates, factor, steps):
    rounds = rungs.rounds_of_training(candidates, steps, factor)
    assert rounds[0][0] == candidates and rounds[-1][1] == steps
    costs = [
        count * (end - before) for (count, end), before in zip(rounds, [0, *(end for _, end in rounds)], strict=False)
    ]
    assert max(costs) - min(costs) <= 2 * candidates, "but for rounding"
    assert rungs.rounds_of_training(8, 7, 2) == [(8, 1), (4, 3), (2, 7)]


@pytest.mark.parametrize(
    ("candidates", "steps", "factor", "expected"),
    [
        (8, 240, 2, [(8, 10), (4, 20), (2, 40)]),
        (12, 120, 3, [(12, 5), (4, 15)]),
        (24, 1000, 4, [(24, 20), (6, 83)]),
        (1, 10, 2, [(1, 10)]),
    ],
    ids=str,
)
def test_halving_divides_the_budget_evenly_over_rounds(candidates, steps, factor, expected):
    divided = rungs.halving_rungs(candidates, steps, factor)
    assert divided == [rungs.Rung(*rung) for rung in expected]
    assert sum(rung.candidates * rung.steps for rung in divided) <= steps


def test_halving_that_cannot_be_is_refused():
    for arguments, message in (
        ((0, 10), "0 candidates leave nothing to train"),
        ((4, 10, 1), "factor of 1 would drop no"),
    ):
        with pytest.raises(RecipeError, match=message):
            rungs.halving_rungs(*arguments)
    for candidates, factor in itertools.product(range(1, 30), (2, 3, 4)):
        with pytest.raises(RecipeError, match=r"give at least (\d+)") as caught:
            rungs.halving_rungs(candidates, 0, factor)
        least = int(str(caught.value).rstrip(".").split()[-1])
        assert all(rung.steps >= 1 for rung in rungs.halving_rungs(candidates, least, factor)), (
            "the least that is named"
        )


def test_survivors_are_those_of_lowest_loss():
    losses = {"a": 0.5, "b": math.nan, "c": 0.1, "d": 0.5, "e": math.inf}
    assert rungs.survivors(losses, 3) == ["c", "a", "d"]
    assert rungs.survivors(losses, 9) == ["c", "a", "d", "b", "e"]
