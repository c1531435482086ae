"""A search of teacher layers from request to record: really trained, taken up again, refused."""

import json
import math

import numpy as np
import optuna
import psutil
import pytest
import torch
import yaml
from optuna.trial import TrialState
from rich.console import Console
from scipy.stats import spearmanr

from limbeck.errors import Interrupted, TrainingError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search import engine, teacher_layer
from limbeck.search import scores as held_out_scores
from limbeck.search.engine import with_option
from limbeck.search.scores import LAYER_SCORES, HeldOutScores, held_out_batches, held_out_pairs
from limbeck.search.study import open_storage
from limbeck.search.teacher_layer import TeacherLayerSearch, search_teacher_layer
from limbeck.search.workers import machine, worker_key
from limbeck.training.proxy import Proxy
from tests.support import teacher_layer_search
from tests.support.teacher_layer_search import DEPTH, make_request

QUIET = Console(quiet=True)
recipe, raced = teacher_layer_search.recipe, teacher_layer_search.raced


def load_study(output):
    return optuna.load_study(study_name="teacher-layer", storage=open_storage(output / "search.journal"))


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


def test_the_recipe_reads_the_layer_that_is_recommended(recipe, raced, tmp_path):
    record = search_teacher_layer(make_request(recipe, tmp_path / "out", steps=30, layers=(1, 3)))
    assert raced == [[1, 3]] and record["best"]["layer"] == 3
    found = yaml.safe_load(yaml.safe_dump(record["recipe"]))
    assert found["stages"][0]["method"].pop("teacher_layer") == 3
    assert found == recipe, "the steps were the proxy's"


def test_candidates_are_trials_of_a_study(recipe, raced, tmp_path):
    search_teacher_layer(make_request(recipe, tmp_path / "out"))
    trials = load_study(tmp_path / "out").trials
    assert [trial.params for trial in trials] == [{"teacher_layer": layer} for layer in (1, 2, 3, 4)]
    assert [trial.value for trial in trials] == [15.0, 30.0, 45.0, 60.0]
    assert trials[3].intermediate_values == {6: 60.0}


def test_a_finished_search_gives_its_result_again(recipe, raced, tmp_path):
    record = search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert search_teacher_layer(make_request(recipe, tmp_path / "out")) == record
    assert len(raced) == 1


def test_a_search_that_was_stopped_starts_again(recipe, raced, tmp_path, monkeypatch):
    halve = teacher_layer.halve
    with monkeypatch.context() as patch:
        patch.setattr(teacher_layer, "halve", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(Interrupted, match="starts the training of the candidates again"):
            search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert teacher_layer.halve is halve
    assert {trial.state for trial in load_study(tmp_path / "out").trials} == {TrialState.FAIL}
    record = search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert raced == [[1, 2, 3, 4]] and record["best"]["layer"] == 4


def leave_running(output, worker, **sign):
    """A trial of another worker with this sign of life."""
    study = load_study(output)
    trial = study.ask()
    trial.set_user_attr("worker", worker)
    trial.suggest_int("teacher_layer", 1, 1)
    this = psutil.Process()
    usual = {"machine": machine(), "process": this.pid, "started": this.create_time(), "interval": 99.0, "beat": 0}
    study.set_user_attr(worker_key(worker), {**usual, "ended": False, **sign})
    return study, trial


def prepare_study(recipe, output, monkeypatch):
    """A study that was made for this search, in which nothing is finished."""
    with monkeypatch.context() as patch:
        patch.setattr(teacher_layer, "halve", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(Interrupted):
            search_teacher_layer(make_request(recipe, output))


def test_what_a_killed_search_left_is_failed_and_trained_again(recipe, raced, tmp_path, monkeypatch):
    prepare_study(recipe, tmp_path / "out", monkeypatch)
    study, trial = leave_running(tmp_path / "out", "killed", started=0.0)
    record = search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert study.trials[trial.number].state == TrialState.FAIL
    assert record["best"]["layer"] == 4


def test_another_process_at_work_is_waited_for(recipe, raced, tmp_path, monkeypatch):
    prepare_study(recipe, tmp_path / "out", monkeypatch)
    study, _ = leave_running(tmp_path / "out", "alive")
    waits = []
    sleep = engine.time.sleep

    def wait(seconds):
        if seconds == 0.25:
            waits.append(seconds)
        else:  # a lock
            sleep(seconds)
        if len(waits) == 3:
            result = {"layers": [{"layer": 2, "steps": 6, "scores": []}], "seconds": 1.0, "created": "then"}
            study.set_user_attr("result", result)

    monkeypatch.setattr(engine.time, "sleep", wait)
    record = search_teacher_layer(make_request(recipe, tmp_path / "out"), poll_seconds=0.25)
    assert waits == [0.25] * 3 and raced == []
    assert record["best"]["layer"] == 2 and record["created"] == "then"


def trained_as(monkeypatch, *ends):
    """Have candidates come to these ends: values of their fields by name."""

    def halve(proxy, plans, candidates, *rest):
        for one, fields in zip(candidates, ends, strict=True):
            for name, value in fields.items():
                setattr(one, name, value)

    monkeypatch.setattr(teacher_layer, "halve", halve)


def test_a_search_in_which_all_diverge_says_so(recipe, raced, tmp_path, monkeypatch):
    trained_as(monkeypatch, *[{"diverged": True}] * DEPTH)
    with pytest.raises(TrainingError, match="Every candidate diverged, so no layer can be recommended"):
        search_teacher_layer(make_request(recipe, tmp_path / "out"))
    assert {trial.state for trial in load_study(tmp_path / "out").trials} == {TrialState.FAIL}


def test_candidates_that_were_cut_or_diverged_are_in_the_record(recipe, raced, tmp_path, monkeypatch):
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
    states = [trial.state.name for trial in load_study(tmp_path / "out").trials]
    assert states == ["PRUNED", "FAIL", "COMPLETE", "PRUNED"]


def test_steps_in_all_are_divided_by_successive_halving(recipe):
    output = None
    search = TeacherLayerSearch(make_request(recipe, output, steps_total=80))
    assert [(rung.candidates, rung.end) for rung in search.rungs] == [(4, 10), (2, 30)]
    assert {plan.recipe.stages[0].training["max_steps"] for plan in search.plans} == {30}
    flat = TeacherLayerSearch(make_request(recipe, output, steps_total=80, halving=None))
    assert {plan.recipe.stages[0].training["max_steps"] for plan in flat.plans} == {20}
    epochs = load_recipe(recipe, ["stages.0.training={num_train_epochs: 1}"])
    assert TeacherLayerSearch(make_request(epochs, output, halving=None)).rungs == ()
