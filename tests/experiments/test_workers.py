"""Jobs end one by one, in this process or in others, and one that dies takes nothing with it."""

import os

import pytest

from limbeck.evaluation.fine_tuning import Cell, prepare
from limbeck.evaluation.fine_tuning.run_cell import CellResult
from limbeck.experiments.attempt import Failure, Job, attempt
from limbeck.experiments.workers import run_jobs
from limbeck.models.vocabulary import load_tokenizer
from tests.evaluation.fine_tuning.tiny_tasks import POINT, make_data, tiny_folder


@pytest.fixture
def jobs(tmp_path):
    folder, data = tiny_folder(tmp_path), make_data("classification", train=16)
    prepared = prepare(data, POINT, load_tokenizer(folder), keys=["t", "d"], cache_dir=tmp_path / "cache")
    return [Job(f"job-{seed}", Cell(str(folder), "t", POINT, seed), prepared, 1.0) for seed in (1, 2, 3)]


def collect(jobs, workers):
    outcomes, moved = {}, []
    run_jobs(
        jobs,
        workers=workers,
        finished=lambda job, outcome: outcomes.__setitem__(job.id, outcome),
        advance=lambda shares, job: moved.append((dict(shares), job.id)),
    )
    return outcomes, moved


def test_one_by_one(jobs):
    outcomes, moved = collect(jobs, 1)
    assert list(outcomes) == ["job-1", "job-2", "job-3"]
    assert all(isinstance(outcome, CellResult) for outcome in outcomes.values())
    assert {identity for _, identity in moved} == set(outcomes)


def test_any_error_ends_its_own_job_in_one_line(jobs, monkeypatch):
    def fail(*_):
        raise ValueError("two\nlines")

    monkeypatch.setattr("limbeck.experiments.attempt.run_cell", fail)
    assert attempt(jobs[0], lambda share: None) == Failure("ValueError: two lines")


def test_ctrl_c_goes_through(jobs, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("limbeck.experiments.attempt.run_cell", stop)
    with pytest.raises(KeyboardInterrupt):
        collect(jobs, 1)


class DiesWhenRead(dict):
    """A part of a job that ends the process which unpickles it."""

    def __reduce__(self):
        return (os._exit, (3,))


@pytest.mark.slow
def test_processes_give_the_same_and_a_dead_one_is_replaced(jobs):
    alone, _ = collect(jobs, 1)
    dying = Job("dies", jobs[0].cell, DiesWhenRead(), 1.0)
    outcomes, moved = collect([dying, *jobs], 2)
    assert outcomes.pop("dies") == Failure("Its process ended with code 3; out of memory?")
    assert {key: outcome.scores for key, outcome in outcomes.items()} == {
        key: outcome.scores for key, outcome in alone.items()
    }
    assert {identity for _, identity in moved} == set(outcomes)
