"""What all searches do alike: go on, stop, share a study, hold it to its run; with candidates that cost nothing."""

import io
import json

import pytest
import yaml
from optuna.trial import TrialState
from rich.console import Console

from limbeck.errors import Interrupted, OutputError, TrainingError
from limbeck.search import engine
from limbeck.search.worker_signs import worker_key
from tests.support import mapping_search, shape_search, teacher_layer_search
from tests.support.known_search import sign_of_life

KINDS = [mapping_search, shape_search, teacher_layer_search]
COMMON = {"kind", "name", "status", "created", "storage", "identity", "teacher", "methods", "share", "best", "recipe",
          "cost", "versions", "git_commit", "hardware"}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS, ids=[kind.NAME for kind in KINDS])
def kind(request):
    return request.param


@pytest.fixture
def run(kind, recipe, tmp_path):
    """Searches into `out`, or elsewhere."""

    def search(data=recipe, output=tmp_path / "out", console=None, **options):
        return kind.search(kind.make_request(data, output, **{**kind.SMALL, **options}), console)

    return search


def test_a_finished_search_gives_its_result_again_wherever_it_is_and_trains_nothing(kind, run, recipe, calls, tmp_path):
    # A database is slow; that of the search of few trials stands for all.
    storage = f"sqlite:///{tmp_path}/search.db" if kind is teacher_layer_search else str(tmp_path / "shared.journal")
    first = run(storage=storage)
    tried = list(calls.tried)
    again = run(storage=storage)
    assert {**again, "created": ""} == {**first, "created": ""} and first.keys() >= COMMON
    json.dumps(first, allow_nan=False)
    elsewhere = run({**recipe, "output": "elsewhere", "name": "another"}, tmp_path / "other", storage=storage)
    assert kind.results(elsewhere) == kind.results(first)
    assert calls.tried == tried and len(set(tried)) == len(tried)


def test_what_is_found_is_the_recipe_with_the_best_candidate(kind, run, recipe, calls):
    result = yaml.safe_load(yaml.safe_dump(run(steps=12, share=0.5)["recipe"]))
    assert kind.take_decided(result) and calls.steps == {12}
    kind.take_decided(recipe)
    assert result == recipe, "steps and share were the candidates'"


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, Interrupted("the training was stopped")], ids=str)
def test_what_is_in_the_study_is_kept_when_it_is_stopped(kind, run, calls, study, tmp_path, stopped_by):
    undisturbed = run(output=tmp_path / "whole")
    several = len(calls.batches) > 1
    calls.batches.clear()

    def stop(candidates):
        if len(calls.batches) == several:
            interrupted.extend(candidates)
            raise stopped_by

    interrupted = []
    calls.before = stop
    with pytest.raises(Interrupted, match=kind.STOPPED):
        run()
    evaluated = list(calls.tried)
    states = [trial.state for trial in study().trials]
    assert states.count(TrialState.COMPLETE) == len(evaluated) and states.count(TrialState.FAIL) > 0
    assert TrialState.RUNNING not in states
    calls.before = None
    record = run()
    assert calls.tried[: len(evaluated) + len(interrupted)] == evaluated + interrupted
    assert len(calls.tried) == len(set(calls.tried))
    if kind is not shape_search:  # Optuna's samplers draw from the number of a trial, which a failed one takes up.
        assert kind.results(record) == kind.results(undisturbed)


def test_the_trial_of_a_killed_worker_is_failed_and_its_candidate_trained(kind, run, recipe, calls, study, tmp_path):
    calls.before = lambda candidates: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(Interrupted):
        run()
    calls.before = None
    trial = kind.leave_running(study(), kind.make_request(recipe, tmp_path / "out", **kind.SMALL))
    trial.set_user_attr("worker", "killed")
    study().set_user_attr(worker_key("killed"), sign_of_life(started=0.0))
    assert run()["cost"].get("failed") != 0, "that of teacher layers counts none"
    assert study().trials[trial.number].state == TrialState.FAIL
    # After those that the first worker had.
    soon = [item if isinstance(item, tuple) else (item,) for batch in calls.batches[:2] for item in batch]
    assert tuple(trial.params.values()) in soon and len(calls.tried) == len(set(calls.tried))


def test_an_output_that_holds_another_search_is_left_as_it_is(kind, run, calls, tmp_path):
    (tmp_path / "out").mkdir()
    this_search = f"{kind.NAME} '{kind.NAME}'"
    for other, name in ((kind.NAME, "mine"), ("another", kind.NAME)):
        record = json.dumps({"kind": other, "name": name})
        (tmp_path / "out" / "search.json").write_text(record)
        refusal = f"holds another search .{other} '{name}', not {this_search}"
        with pytest.raises(OutputError, match=refusal):
            run()
        assert [path.read_text() for path in (tmp_path / "out").iterdir()] == [record]
    (tmp_path / "out" / "search.json").rename(tmp_path / "out" / "recipe.yaml")
    with pytest.raises(OutputError, match="holds no search"):
        run()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["recipe.yaml"]
    assert not calls.batches


with_workers = pytest.mark.parametrize("kind", KINDS[:2], ids=[kind.NAME for kind in KINDS[:2]], indirect=True)


@with_workers
def test_workers_that_all_end_early_say_why_and_keep_what_there_is(kind, run, calls, monkeypatch):
    kept = kind.STOPPED.removeprefix("everything")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "run_workers", lambda work, task, count, watch: ["Killed.", "Killed."])
        with pytest.raises(
            TrainingError, match=rf"before the search was finished: Killed\. Everything{kept} .*journal; run the same"
        ):
            run(workers=2)
    run()
    assert calls.tried


@with_workers
def test_a_worker_that_fails_beside_others_is_told_of(kind, run, calls, monkeypatch):
    def run_workers(work, task, count, watch):
        watch()
        work(task)
        watch()
        return ["Out of memory."]

    monkeypatch.setattr(engine, "run_workers", run_workers)
    console = Console(record=True, width=100, file=io.StringIO())
    record = run(workers=2, console=console)
    assert kind.results(record) and "Out of memory." in console.export_text()
