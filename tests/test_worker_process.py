"""Workers end with the process they work for, however that ends."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

PARENT = """
import os, sys, time
from pathlib import Path
from limbeck.core.workers import run_workers

def work(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    from limbeck.cli import main
    import signal
    signal.signal(signal.SIGTERM, main._end)
    run_workers(work, sys.argv[1], 2, lambda: None)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_no_worker_outlives_its_parent(tmp_path, number, code):
    script, started = tmp_path / "parent.py", tmp_path / "started"
    script.write_text(PARENT, encoding="utf-8")
    started.mkdir()
    parent = subprocess.Popen([sys.executable, str(script), str(started)], env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        workers = wait_for(lambda: names if len(names := [path.name for path in started.iterdir()]) == 2 else None)
        assert workers, "no workers were started"
        parent.send_signal(number)
        assert parent.wait(timeout=60) == code
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
