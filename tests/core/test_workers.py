"""Worker processes: a problem of one takes no other with it, and all end with the process they work for."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch

from limbeck.cli import main
from limbeck.core.process_pools import map_parallel
from limbeck.core.workers import run_workers
from limbeck.errors import CorpusError, RecipeError


def work_as_told(folder: str) -> None:
    """The first process that comes fails, the second dies, the others work."""
    for number in range(4):
        try:
            (Path(folder) / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        break
    if number == 0:
        raise RecipeError("it cannot\n be")
    if number == 1:
        os._exit(7)
    (Path(folder) / f"threads-{number}").write_text(str(torch.get_num_threads()))


def test_problems_are_told_and_the_others_work(tmp_path):
    watched = []
    problems = run_workers(work_as_told, str(tmp_path), 3, lambda: watched.append(1))
    assert sorted(problems) == ["A worker ended with code 7; out of memory, or killed?", "it cannot be"]
    assert (tmp_path / "threads-2").read_text() == "1"
    assert watched


def die_at_the_fifth(number):
    if number == 5:
        os._exit(9)
    return number


def test_a_pool_that_loses_a_worker_leaves_none_behind():
    for _ in range(
        8
    ):  # Giving the rest of the work up has to meet the pool telling it, which it does every third time.
        with pytest.raises(CorpusError, match="A worker process died"):
            list(map_parallel(die_at_the_fifth, range(3000), 3))
        assert multiprocessing.active_children() == []


def work_for_long(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)


def have_workers(folder, count):
    signal.signal(signal.SIGTERM, main._end)
    run_workers(work_for_long, folder, count, lambda: None)


@pytest.mark.parametrize(("number", "code", "count"), [(signal.SIGKILL, -9, 2), (signal.SIGTERM, 143, 1)])
def test_no_worker_outlives_its_parent(tmp_path, number, code, count):
    parent = multiprocessing.get_context("fork").Process(target=have_workers, args=(str(tmp_path), count))
    parent.start()
    try:
        workers = wait_for(lambda: names if len(names := [path.name for path in tmp_path.iterdir()]) == count else None)
        assert workers, "no workers were started"
        os.kill(parent.pid, number)
        parent.join(timeout=60)
        assert parent.exitcode == code
        assert wait_for(lambda: not any(psutil.pid_exists(int(worker)) for worker in workers))
    finally:
        parent.kill()


def wait_for(look, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.1)
    return None
