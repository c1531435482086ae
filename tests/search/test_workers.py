"""Workers that are killed, and several at once: nothing is lost but the killed trial, and it is tried again."""

import json
import multiprocessing
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from optuna.trial import TrialState

from limbeck.search import lost_trials, run_search, worker_signs
from limbeck.search.lost_trials import LostTrials
from limbeck.search.mapping_trials import genome_of, suggest
from limbeck.search.worker_signs import machine, worker_key
from tests.support import known_search
from tests.support.known_search import (
    GENERATIONS,
    SPACE,
    expected_generations,
    fitness,
    generations_of,
    open_known,
    sign_of_life,
)


def start_worker(place, log, *arguments):
    """Start a process with all that is imported here; a fresh one would need seconds for it."""
    process = multiprocessing.get_context("fork").Process(target=known_search.work, args=(place, log, *arguments))
    process.start()
    return process


def started_in(*logs):
    return [tuple(json.loads(line)) for log in logs if log.exists() for line in log.read_text().splitlines()]


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.01)


def assert_complete(study):
    """The undisturbed search, every genome with one value, and one trial that was lost."""
    expected = expected_generations(GENERATIONS)
    assert generations_of(study, GENERATIONS) == expected
    result = [genome_of(trial, SPACE) for trial in study.get_trials(states=(TrialState.COMPLETE,))]
    assert sorted(result) == sorted({genome for generation in expected for genome in generation})
    assert len(study.get_trials(states=(TrialState.FAIL,))) == 1


def test_workers_evaluate_nothing_twice_and_take_over_from_one_that_is_killed_beside_them(place, tmp_path):
    logs = [tmp_path / name for name in ("killed", "first", "second")]
    killed = start_worker(place, logs[0], 2, 2)
    wait_for(lambda: len(started_in(logs[0])) == 2)
    others = [start_worker(place, log, 2) for log in logs[1:]]
    wait_for(lambda: len(started_in(*logs[1:])) >= 3)
    killed.kill()  # a zombie until it is waited for, which is dead enough
    for other in others:
        other.join(90)
        assert other.exitcode == 0
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert_complete(open_known(place))
    started = Counter(started_in(*logs))
    # Of the killed one's pair, the first was told before the second began.
    assert [mapping for mapping, count in started.items() if count > 1] == [started_in(logs[0])[1]]


@pytest.fixture
def study(tmp_path):
    return open_known(tmp_path / "search.journal")


def running_trial(study, worker=None):
    trial = study.ask()
    if worker is not None:
        trial.set_user_attr("worker", worker)
    suggest(trial, SPACE)
    return trial


def test_a_worker_elsewhere_is_dead_when_its_sign_of_life_stands_still(study):
    running_trial(study, "alive")
    dead = running_trial(study, "dead")
    elsewhere = {"machine": "elsewhere", "process": 1, "interval": 0.05}
    study.set_user_attr(worker_key("dead"), sign_of_life(**elsewhere, beat=7))
    watch = LostTrials(study)
    began = time.monotonic()
    for beat in range(8):
        study.set_user_attr(worker_key("alive"), sign_of_life(**elsewhere, beat=beat))
        if lost := watch.fail():
            break
        time.sleep(0.05)
    assert time.monotonic() - began > worker_signs.MISSED_BEATS * 0.05
    assert [trial.number for trial in lost] == [dead.number]
    assert [trial.state for trial in study.trials] == [TrialState.RUNNING, TrialState.FAIL]
    assert watch.fail() == []


def test_a_trial_that_nobody_put_a_name_to_is_lost_after_a_while(study, monkeypatch):
    monkeypatch.setattr(lost_trials, "BEAT_SECONDS", 0.02)
    trial = running_trial(study)
    watch = LostTrials(study)
    assert watch.fail() == []
    time.sleep(0.1)
    assert [lost.number for lost in watch.fail()] == [trial.number]


def test_a_trial_without_a_name_is_lost_at_once_where_all_other_workers_are_dead(study):
    with worker_signs.sign_of_life(study) as worker:
        first = running_trial(study)
        assert LostTrials(study).fail() == []
        assert [lost.number for lost in LostTrials(study).fail(worker)] == [first.number]
        with worker_signs.sign_of_life(study):
            second = running_trial(study)
            assert LostTrials(study).fail(worker) == [], "it may be the other's"
    assert [lost.number for lost in LostTrials(study).fail()] == [second.number]


def test_only_one_of_two_watchers_fails_a_trial_and_a_process_of_the_same_number_is_another(study, tmp_path):
    running_trial(study, "reused")
    study.set_user_attr(worker_key("reused"), sign_of_life())
    assert LostTrials(study).fail() == []
    started = sign_of_life()["started"] - 60
    study.set_user_attr(worker_key("reused"), sign_of_life(started=started))
    watches = [LostTrials(study), LostTrials(open_known(tmp_path / "search.journal"))]
    assert sum(len(watch.fail()) for watch in watches) == 1


def test_signs_of_life_go_on_while_a_worker_works(study, monkeypatch):
    with worker_signs.sign_of_life(study, interval=0.01) as worker:
        running_trial(study, worker)
        write, tries = study.set_user_attr, []

        def fails_twice(name, sign):
            tries.append(1)
            if len(tries) <= 2:
                raise OSError("the network is away")
            write(name, sign)

        monkeypatch.setattr(study, "set_user_attr", fails_twice)
        wait_for(lambda: len(tries) > 2 and study.user_attrs[worker_key(worker)]["beat"] >= 3)
        assert LostTrials(study).fail() == []
    record = study.user_attrs[worker_key(worker)]
    assert record["ended"]
    time.sleep(0.05)
    assert study.user_attrs[worker_key(worker)] == record


def test_a_worker_that_was_taken_for_dead_cannot_tell_any_more(study, tmp_path):
    other = open_known(tmp_path / "search.journal")

    def slow(candidates):
        for candidate in candidates:
            if candidate.trial.number == 0:
                other.tell(0, state=TrialState.FAIL)
            yield fitness(candidate.mapping)

    run_search(study, slow, generations=GENERATIONS, batch=6)
    assert study.trials[0].state == TrialState.FAIL
    assert_complete(study)


def test_machines_are_told_apart():
    assert machine() == machine()
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() in machine() or sys.platform != "linux"
