"""Worker processes: a problem of one takes no other with it."""

import os
from pathlib import Path

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


def test_problems_are_told_and_the_others_work(tmp_path):
    watched = []
    problems = run_workers(work_as_told, str(tmp_path), 3, lambda: watched.append(1))
    assert sorted(problems) == ["A worker ended with code 7; out of memory, or killed?", "it cannot be"]
    assert (tmp_path / "threads-2").read_text() == "1"
    assert watched
