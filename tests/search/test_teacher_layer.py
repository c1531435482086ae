"""A search of teacher layers from request to record: really trained, taken up again, refused."""

import json
import math

import numpy as np
import pytest
import torch
from optuna.trial import TrialState
from rich.console import Console
from scipy.stats import spearmanr

from limbeck.errors import Interrupted, LimbeckError, OutputError, RecipeError, TrainingError
from limbeck.methods.registry import METHODS
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search import engine, teacher_layer
from limbeck.search import scores as held_out_scores
from limbeck.search.engine import methods_with, with_option
from limbeck.search.scores import LAYER_SCORES, HeldOutScores, held_out_batches, held_out_pairs
from limbeck.search.teacher_layer import TeacherLayerSearch, search_teacher_layer
from limbeck.search.workers import worker_key
from limbeck.training.proxy import Proxy
from tests.support import teacher_layer_search as searched
from tests.support.known_search import sign_of_life
from tests.support.teacher_layer_search import DEPTH, make_request

QUIET = Console(quiet=True)


def layer_scores(proxy, plan):
    return HeldOutScores(proxy.load_teacher(), proxy.tokenizer, proxy.corpora[0], plan, LAYER_SCORES)


def test_a_search_that_trains(recipe, tmp_path):
    record = search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert record["rungs"] == [{"candidates": 4, "end": 2}, {"candidates": 2, "end": 6}]
    rows = record["layers"]
    assert sorted(row["layer"] for row in rows) == [1, 2, 3, 4] and [row["rank"] for row in rows] == [1, 2, 3, 4]
    assert [row["steps"] for row in rows] == [6, 6, 2, 2]
    assert [row["state"] for row in rows] == ["trained", "trained", "cut", "cut"]
    first = {row["layer"]: row["scores"][0]["score"] for row in rows}
    assert {row["layer"] for row in rows[:2]} == set(sorted(first, key=first.get)[2:])
    assert rows[0]["scores"][-1]["score"] >= rows[1]["scores"][-1]["score"]
    # Trained alone, without rungs or neighbours, the best comes to the same scores and loss.
    plan = plan_run(with_option(load_recipe(recipe), "teacher_layer", rows[0]["layer"]))
    proxy = Proxy(plan, console=QUIET)
    [alone] = proxy.train([plan])
    found = layer_scores(proxy, plan).measure(alone.student, plan, "alone")
    last = rows[0]["scores"][-1]
    assert last["step"] == 6 and rows[0]["own_loss"] == pytest.approx(alone.held_out["loss"], rel=1e-5)
    assert {name: last[name] for name in ("agreement", "explained")} == pytest.approx(found, rel=1e-3)
    assert last["score"] == pytest.approx(sum(found.values()) / 2, rel=1e-3)
    json.dumps(record, allow_nan=False)


def test_scores_are_those_of_the_models_outputs(recipe, monkeypatch):
    monkeypatch.setattr(held_out_scores, "PAIRS", 60)
    plan = plan_run(load_recipe(recipe))
    proxy = Proxy(plan, console=QUIET)
    teacher = proxy.load_teacher()
    [trained] = proxy.train([plan])
    found = layer_scores(proxy, plan).measure(trained.student, plan, "trained")

    def vector(model, text):
        inputs = proxy.tokenizer(text, return_tensors="pt", truncation=True, max_length=24)
        with torch.no_grad():
            return model(**inputs).last_hidden_state[0].mean(0).double().numpy()

    def similarities(model):
        pairs = [(vector(model, first), vector(model, second)) for first, second in held_out_pairs(proxy.corpora[0])]
        return [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]

    agreement = spearmanr(similarities(trained.student), similarities(teacher)).statistic
    assert found["agreement"] == pytest.approx(100 * agreement, abs=0.5)

    def hidden(model):
        rows = []
        for batch in held_out_batches(proxy.corpora[0], proxy.tokenizer):
            with torch.no_grad():
                states = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
            rows.append(states[batch["attention_mask"].bool()].double().numpy())
        return np.concatenate(rows)

    ours, theirs = hidden(trained.student), hidden(teacher)
    ours, theirs = ours - ours.mean(0), theirs - theirs.mean(0)
    weight, *_ = np.linalg.lstsq(ours, theirs, rcond=None)
    best = 1 - np.square(theirs - ours @ weight).sum() / np.square(theirs).sum()
    # On the rows that it was fitted on; a map that was fitted on others explains a little less.
    assert 100 * best - 10 < found["explained"] < 100 * best + 3
    equal = layer_scores(proxy, plan).measure(proxy.load_teacher(), plan, "teacher")
    assert equal == pytest.approx({"agreement": 100, "explained": 100}, abs=0.5)


def test_candidates_are_trials_of_a_study(recipe, asked, tmp_path, study):
    search_teacher_layer(make_request(recipe, tmp_path / "out"))
    trials = study().trials
    assert [trial.params for trial in trials] == [{"teacher_layer": layer} for layer in (1, 2, 3, 4)]
    assert [trial.value for trial in trials] == [15.0, 30.0, 45.0, 60.0]
    assert trials[3].intermediate_values == {6: 60.0}


def test_another_process_at_work_is_waited_for(recipe, asked, tmp_path, monkeypatch, study):
    asked.before = lambda layers: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(Interrupted):
        search_teacher_layer(make_request(recipe, tmp_path / "out"))
    shared = study()
    trial = searched.leave_running(shared, None)
    trial.set_user_attr("worker", "alive")
    shared.set_user_attr(worker_key("alive"), sign_of_life())
    waits = []
    sleep = engine.time.sleep

    def wait(seconds):
        if seconds == 0.25:
            waits.append(seconds)
        else:  # a lock
            sleep(seconds)
        if len(waits) == 3:
            result = {"layers": [{"layer": 2, "steps": 6, "scores": []}], "seconds": 1.0, "created": "then"}
            shared.set_user_attr("result", result)

    monkeypatch.setattr(engine.time, "sleep", wait)
    record = search_teacher_layer(make_request(recipe, tmp_path / "out"), poll_seconds=0.25)
    assert waits == [0.25] * 3 and not asked.batches
    assert record["best"]["layer"] == 2 and record["created"] == "then"


def trained_as(monkeypatch, *ends):
    """Have candidates come to these ends: values of their fields by name."""

    def halve(proxy, plans, candidates, *rest):
        for one, fields in zip(candidates, ends, strict=True):
            for name, value in fields.items():
                setattr(one, name, value)

    monkeypatch.setattr(teacher_layer, "halve", halve)


def test_a_search_in_which_all_diverge_says_so(recipe, asked, tmp_path, monkeypatch, study):
    trained_as(monkeypatch, *[{"diverged": True}] * DEPTH)
    with pytest.raises(TrainingError, match="Every candidate diverged, so no layer can be recommended"):
        search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert {trial.state for trial in study().trials} == {TrialState.FAIL}


def test_candidates_that_were_cut_or_diverged_are_in_the_record(recipe, asked, tmp_path, monkeypatch, study):
    trained_as(
        monkeypatch,
        {"scores": {2: {"agreement": 1.0, "explained": 2.0}}, "steps": 2, "own_loss": 0.5, "cut": True},
        {"steps": 1, "diverged": True},
        {"scores": {2: {"agreement": 3.0, "explained": 4.0}, 6: {"agreement": 5.0, "explained": 8.0}}, "steps": 6},
        {"scores": {2: {"agreement": math.nan, "explained": 9.0}}, "steps": 2, "cut": True},
    )
    record = search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert [(row["layer"], row["state"], row["own_loss"]) for row in record["layers"]] == [
        (3, "trained", None),
        (1, "cut", 0.5),
        (4, "cut", None),
        (2, "diverged", None),
    ]
    assert record["layers"][0]["scores"] == [
        {"step": 2, "score": 3.5, "agreement": 3.0, "explained": 4.0},
        {"step": 6, "score": 6.5, "agreement": 5.0, "explained": 8.0},
    ]
    assert record["layers"][2]["scores"] == [{"step": 2, "score": None, "agreement": None, "explained": 9.0}]
    assert record["cost"]["steps"] == 11
    states = [trial.state.name for trial in study().trials]
    assert states == ["PRUNED", "FAIL", "COMPLETE", "PRUNED"]


def test_steps_in_all_are_divided_by_successive_halving(recipe):
    output = None
    search = TeacherLayerSearch(make_request(recipe, output, steps_total=80))
    assert search.rounds == [(4, 10), (2, 30)]
    assert {plan.recipe.stages[0].training["max_steps"] for plan in search.plans} == {30}
    flat = TeacherLayerSearch(make_request(recipe, output, steps_total=80, halving=None))
    assert {plan.recipe.stages[0].training["max_steps"] for plan in flat.plans} == {20}
    epochs = load_recipe(recipe, ["stages.0.training={num_train_epochs: 1}"])
    assert TeacherLayerSearch(make_request(epochs, output, halving=None)).rungs == ()


# What is refused before anything is trained.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": (3, 5)}, "--layers names layer 5, but this teacher has layers 1 to 4"),
        ({"layers": (0, 1)}, "--layers names layer 0, but this teacher has layers 1 to 4"),
        ({"layers": (2, 2)}, "1 candidate leaves nothing to choose; give --layers two or more of 1 to 4"),
        ({"halving": 1}, "A halving factor of 1 drops no candidate"),
        ({"steps": 1}, "1 steps are too few for 2 rounds of 4 candidates"),
        ({"steps_total": 10**9 + 1}, "--steps-total 1000000001 is more than any training takes"),
        ({"steps_total": 7}, "7 steps for 4 candidates in 2 rounds leave some without a step; give at least 8"),
        ({"steps_total": 3, "halving": None}, "--steps-total 3 leaves some of 4 candidates without a step"),
        ({"steps_total": 9, "steps": 9}, "--steps and --steps-total both say how long candidates train"),
    ],
    ids=str,
)
def test_mistakes_in_what_is_asked(recipe, asked, tmp_path, options, message):
    with pytest.raises(RecipeError, match=message) as caught:
        search_teacher_layer(make_request(recipe, tmp_path / "out", **options))
    assert "\n" not in str(caught.value) and not asked.batches


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["stages.0.method=tinybert"],
            "'tinybert' reads no teacher layer by number; methods that do are direct_minilm, minilmv2",
        ),
        (["student.shape=6x8h4"], "The student has 6 layers and its teacher 4; give student.shape at most 4"),
        (["stages=[{name: a, method: minilmv2}, {name: b, method: direct_minilm}]"], "The stages a, b each read a"),
        (
            ["stages=[{name: a, method: minilmv2}, {name: b, method: hidden_states}]"],
            "has 2 stages, and candidates are stopped early only where it has one; give --no-halving",
        ),
        (["stages.0.training={}"], "The recipe counts epochs, .*give --steps, or --no-halving"),
    ],
    ids=str,
)
def test_recipes_that_cannot_be_searched(recipe, tmp_path, changes, message):
    with pytest.raises(LimbeckError, match=message):
        search_teacher_layer(make_request(load_recipe(recipe, changes), tmp_path / "out"))


def test_methods_that_can_be_searched_read_one_teacher_layer():
    known = methods_with("teacher_layer")
    assert {"minilmv2", "direct_minilm"} <= set(known)
    assert all("teacher_layer" in METHODS[name].options.model_fields for name in known)


def test_a_study_of_something_else_is_refused(recipe, asked, tmp_path):
    search_teacher_layer(make_request(recipe, tmp_path / "out"))
    for changed, options, key in (
        (recipe, {"layers": (2, 3)}, r"stages\.0\.training\.max_steps|layers"),
        (recipe, {"steps": 30}, r"stages\.0\.training\.max_steps"),
    ):
        with pytest.raises(OutputError, match=f"was made for another ({key})"):
            search_teacher_layer(make_request(changed, tmp_path / "out", **options))
    assert len(asked.batches) == 1
