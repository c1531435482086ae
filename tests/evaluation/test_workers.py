"""Trainings end one by one, in this process or in others, and one that dies takes nothing with it."""

import os
from dataclasses import replace

import pytest

from limbeck.evaluation.evaluators.evaluator import FINE_TUNED, CellResult, ReadyCell
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.run.trainings import CellDone, Failure, SharedTraining, run_trainings
from limbeck.models.tokenizers import load_tokenizer
from tests.support.tasks import KEYS, POINT, make_data, prepare, tiny_folder
from tests.support.training import interrupt


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("jobs")
    folder, data = tiny_folder(tmp_path), make_data("classification", train=16)
    prepared = prepare(data, POINT, load_tokenizer(folder), keys=KEYS, cache_dir=tmp_path / "cache")
    cells = {seed: ReadyCell(Cell(str(folder), "t", POINT, seed), prepared) for seed in (1, 2, 3)}
    # The second training is scored for two cells.
    other = ReadyCell(replace(cells[2].cell, task="u"), prepared)
    return [
        SharedTraining("job-1", FINE_TUNED, {"cell-1": cells[1]}, 1.0),
        SharedTraining("job-2", FINE_TUNED, {"cell-2": cells[2], "cell-2b": other}, 1.0),
        SharedTraining("job-3", FINE_TUNED, {"cell-3": cells[3]}, 1.0),
    ]


def collect(jobs, workers=1):
    outcomes, moved = {}, []

    def received(job, message):
        if isinstance(message, CellDone):
            outcomes[message.cell_id] = message.outcome
        else:
            moved.append((job.id, message.share))

    run_trainings(jobs, workers=workers, received=received)
    return outcomes, moved


def test_one_by_one(jobs):
    outcomes, moved = collect(jobs, 1)
    assert list(outcomes) == ["cell-1", "cell-2", "cell-2b", "cell-3"]
    assert all(isinstance(outcome, CellResult) for outcome in outcomes.values())
    assert outcomes["cell-2b"].scores == outcomes["cell-2"].scores != outcomes["cell-3"].scores
    assert {identity for identity, _ in moved} == {job.id for job in jobs}


def test_any_error_ends_its_own_job_in_one_line(jobs, monkeypatch):
    def fail(*_):
        raise ValueError("two\nlines")

    monkeypatch.setattr("limbeck.evaluation.evaluators.fine_tuned.train_once", fail)
    failure = Failure("ValueError: two lines")
    assert collect(jobs[1:2])[0] == {"cell-2": failure, "cell-2b": failure}


def test_a_cell_that_cannot_be_scored_leaves_those_of_its_training(jobs):
    whole, part = jobs[1].cells.values()
    broken = ReadyCell(part.cell, replace(part.prepared, folder=part.prepared.folder / "gone"))
    job = SharedTraining("job", FINE_TUNED, {"whole": whole, "broken": broken, "again": whole}, 1.0)
    outcomes, _ = collect([job])
    assert list(outcomes) == ["whole", "broken", "again"]
    assert isinstance(outcomes["broken"], Failure) and "gone" in outcomes["broken"].problem
    assert outcomes["again"].scores == outcomes["whole"].scores


def test_a_job_says_what_it_is_for(jobs):
    rate = "rate 0.001, 2 epochs, seed"
    assert jobs[0].describe().endswith(f"teacher-bert, t, {rate} 1")
    assert jobs[1].describe().endswith(f"teacher-bert, t, {rate} 2; scored on u too")


def test_ctrl_c_goes_through(jobs, monkeypatch):
    monkeypatch.setattr("limbeck.evaluation.evaluators.fine_tuned.train_once", interrupt)
    with pytest.raises(KeyboardInterrupt):
        collect(jobs, 1)


class DiesWhenRead(dict):
    """A part of a job that ends the process which unpickles it."""

    def __reduce__(self):
        return (os._exit, (3,))


@pytest.mark.slow
def test_processes_give_the_same_and_a_dead_one_is_replaced(jobs):
    alone, _ = collect(jobs, 1)
    first = jobs[0].cells["cell-1"]
    dying = SharedTraining("dies", FINE_TUNED, {"one": ReadyCell(first.cell, DiesWhenRead()), "other": first}, 1.0)
    outcomes, moved = collect([dying, *jobs], 2)
    dead = Failure("A worker ended with code 3; out of memory, or killed?")
    assert (outcomes.pop("one"), outcomes.pop("other")) == (dead, dead)
    assert {key: outcome.scores for key, outcome in outcomes.items()} == {
        key: outcome.scores for key, outcome in alone.items()
    }
    assert {identity for identity, _ in moved} == {job.id for job in jobs}
