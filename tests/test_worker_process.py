"""Workers end with the process they work for, however that ends."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from limbeck.cli import main
from limbeck.core.workers import run_workers


def work(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)


def have_workers(folder):
    signal.signal(signal.SIGTERM, main._end)
    run_workers(work, folder, 2, lambda: None)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_no_worker_outlives_its_parent(tmp_path, number, code):
    parent = multiprocessing.get_context("fork").Process(target=have_workers, args=(str(tmp_path),))
    parent.start()
    try:
        workers = wait_for(lambda: names if len(names := [path.name for path in tmp_path.iterdir()]) == 2 else None)
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
