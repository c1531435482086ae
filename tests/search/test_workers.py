"""Workers that are killed, and several at once: nothing is lost but the killed trial, and it is tried again."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from optuna.trial import TrialState

from limbeck.search import run_search, workers
from limbeck.search.genetic_sampler import genome_of, suggest
from limbeck.search.workers import LostTrials, SignOfLife, machine, worker_key
from tests.support import known_search
from tests.support.known_search import (
    GENERATIONS,
    SPACE,
    evaluate,
    expected_generations,
    fitness,
    generations_of,
    open_known,
)


def start_worker(place, log, *arguments):
    command = [sys.executable, "-m", known_search.__name__, place, str(log), *map(str, arguments)]
    return subprocess.Popen(command, cwd=Path(known_search.__file__).parents[2], stderr=subprocess.PIPE)


def started_in(log):
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.01)


def assert_complete(study):
    """The undisturbed search, every genome with one value."""
    assert generations_of(study, GENERATIONS) == expected_generations(GENERATIONS)
    found = Counter(genome_of(trial, SPACE) for trial in study.get_trials(states=(TrialState.COMPLETE,)))
    assert set(found) == {genome for generation in expected_generations(GENERATIONS) for genome in generation}
    assert set(found.values()) == {1}


def test_a_killed_worker_loses_only_its_trial(place, tmp_path):
    log = tmp_path / "log"
    worker = start_worker(place, log, 1, 4)
    wait_for(lambda: len(started_in(log)) == 4)
    worker.send_signal(signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    worker.stderr.close()
    study = open_known(place)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3 + [TrialState.RUNNING]
    seen = []

    def remember(candidates):
        seen.extend(candidate.mapping for candidate in candidates)
        return evaluate(candidates)

    run_search(study, remember, generations=GENERATIONS, batch=1)
    assert seen[0] == started_in(log)[3]
    assert not set(seen) & set(started_in(log)[:3])
    assert [trial.state for trial in study.trials].count(TrialState.FAIL) == 1
    assert_complete(study)


def test_a_worker_takes_over_from_one_that_is_killed_beside_it(place, tmp_path):
    logs = [tmp_path / "killed", tmp_path / "other"]
    killed = start_worker(place, logs[0], 2, 2)
    wait_for(lambda: len(started_in(logs[0])) == 2)
    other = start_worker(place, logs[1], 2)
    wait_for(lambda: len(started_in(logs[1])) >= 3)
    killed.kill()  # a zombie until it is waited for, which is dead enough
    _, errors = other.communicate(timeout=90)
    assert other.returncode == 0, errors
    killed.communicate()
    assert_complete(open_known(place))
    # Of the killed one's pair, the first was told before the second began.
    assert set(started_in(logs[0])) & set(started_in(logs[1])) == {started_in(logs[0])[1]}


def test_workers_share_a_study_and_evaluate_nothing_twice(place, tmp_path):
    logs = [tmp_path / str(number) for number in range(3)]
    processes = [start_worker(place, log, 2) for log in logs]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    started = Counter(mapping for log in logs for mapping in started_in(log))
    assert set(started.values()) == {1}
    assert_complete(open_known(place))


@pytest.fixture
def study(tmp_path):
    return open_known(tmp_path / "search.journal")


def running_trial(study, worker=None):
    trial = study.ask()
    if worker is not None:
        trial.set_user_attr("worker", worker)
    suggest(trial, SPACE)
    return trial


def elsewhere(study, name, beat, interval=0.05):
    record = {"machine": "elsewhere", "process": 1, "started": 0.0, "interval": interval, "beat": beat, "ended": False}
    study.set_user_attr(worker_key(name), record)


def test_a_worker_elsewhere_is_dead_when_its_sign_of_life_stands_still(study):
    alive, dead = running_trial(study, "alive"), running_trial(study, "dead")
    elsewhere(study, "dead", 7)
    watch = LostTrials(study)
    began = time.monotonic()
    for beat in range(8):
        elsewhere(study, "alive", beat)
        lost = watch.fail()
        if lost:
            break
        time.sleep(0.05)
    assert time.monotonic() - began > workers.MISSED_BEATS * 0.05
    assert [trial.number for trial in lost] == [dead.number]
    assert [trial.state for trial in study.trials] == [TrialState.RUNNING, TrialState.FAIL]
    assert watch.fail() == []
    assert alive.number == 0


def test_a_trial_that_nobody_put_a_name_to_is_lost_after_a_while(study, monkeypatch):
    monkeypatch.setattr(workers, "BEAT_SECONDS", 0.02)
    trial = running_trial(study)
    watch = LostTrials(study)
    assert watch.fail() == []
    time.sleep(0.1)
    assert [lost.number for lost in watch.fail()] == [trial.number]


def test_a_trial_without_a_name_is_lost_at_once_where_all_other_workers_are_dead(study):
    with SignOfLife(study) as life:
        first = running_trial(study)
        assert LostTrials(study).fail() == []
        assert [lost.number for lost in LostTrials(study).fail(life.worker)] == [first.number]
        with SignOfLife(study):
            second = running_trial(study)
            assert LostTrials(study).fail(life.worker) == [], "it may be the other's"
    assert [lost.number for lost in LostTrials(study).fail()] == [second.number]


def test_only_one_of_two_watchers_fails_a_trial(study, tmp_path):
    with SignOfLife(study) as life:
        running_trial(study, life.worker)
        assert LostTrials(study).fail() == []
    other = open_known(tmp_path / "search.journal")
    watches = [LostTrials(study), LostTrials(other)]
    assert sum(len(watch.fail()) for watch in watches) == 1


def test_a_process_of_the_same_number_is_not_the_same_process(study):
    running_trial(study, "reused")
    this = psutil.Process()
    record = {
        "machine": machine(),
        "process": this.pid,
        "started": this.create_time() - 60,
        "interval": 99.0,
        "beat": 0,
    }
    study.set_user_attr(worker_key("reused"), record | {"ended": False})
    assert len(LostTrials(study).fail()) == 1


def test_signs_of_life_go_on_while_a_worker_works(study):
    with SignOfLife(study, interval=0.01) as life:
        running_trial(study, life.worker)
        wait_for(lambda: study.user_attrs[worker_key(life.worker)]["beat"] >= 3)
        assert LostTrials(study).fail() == []
    record = study.user_attrs[worker_key(life.worker)]
    assert record["ended"]
    time.sleep(0.05)
    assert study.user_attrs[worker_key(life.worker)] == record


def test_a_beat_that_cannot_be_written_is_not_the_end(study, monkeypatch):
    with SignOfLife(study, interval=0.01) as life:
        write, tries = life._write, []

        def fails_twice():
            tries.append(1)
            if len(tries) <= 2:
                raise OSError("the network is away")
            write()

        monkeypatch.setattr(life, "_write", fails_twice)
        wait_for(lambda: len(tries) > 3)
        assert study.user_attrs[worker_key(life.worker)]["beat"] >= 3


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
