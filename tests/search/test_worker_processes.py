"""Worker processes of a search: each has its say, and one that dies takes no other with it."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch

from limbeck.core.workers import run_workers
from limbeck.errors import RecipeError


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


def sleep_long(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(60)


def test_problems_are_told_and_the_others_work(tmp_path):
    watched = []
    problems = run_workers(work_as_told, str(tmp_path), 3, lambda: watched.append(1))
    assert sorted(problems) == ["A worker ended with code 7; out of memory, or killed?", "it cannot be"]
    assert (tmp_path / "threads-2").read_text() == "1"
    assert watched


@pytest.mark.slow
def test_workers_are_ended_when_the_user_stops(tmp_path):
    def stop():
        if len(list(tmp_path.iterdir())) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_workers(sleep_long, str(tmp_path), 2, stop)
    assert not multiprocessing.active_children()
