"""Tasks on threads: results in order, settings left as they were, gradients recorded nowhere; parts computed once."""

import ctypes
import shutil
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from limbeck.kernels import relation_kl_blocked, relation_kl_reference, workers
from limbeck.kernels.cpu import team
from limbeck.kernels.cpu.compiling import compile_kernel
from limbeck.kernels.cpu.team import TeamKernel
from limbeck.kernels.workers import Scratch, run_tasks
from tests.kernels.relation_cases import draw, run
from tests.support.masks import make_mask


def test_results_come_in_order_from_several_threads(two_threads):
    def task(number):
        time.sleep(0.02)
        return number, threading.get_ident(), torch.get_num_threads(), torch.is_grad_enabled()

    results = run_tasks([lambda n=n: task(n) for n in range(8)])
    assert [number for number, *_ in results] == list(range(8))
    assert len({thread for _, thread, *_ in results}) == 2
    assert {(threads, recording) for *_, threads, recording in results} == {(1, False)}


def test_settings_of_the_process_stay(two_threads, monkeypatch):
    monkeypatch.setattr(workers, "_pools", {})
    run_tasks([lambda: None] * 3)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *seen] == [2, 2]


def test_errors_arrive_and_one_task_stays_where_it_is(two_threads):
    with pytest.raises(ZeroDivisionError):
        run_tasks([lambda: 1, lambda: 1 // 0])
    assert run_tasks([threading.get_ident]) == [threading.get_ident()]


@pytest.mark.parametrize("symmetric", [True, False])
def test_kernels_give_the_same_on_several_threads(symmetric, two_threads):
    for length, name in ((10, "empty row"), (128, "right"), (128, "none")):
        tensors, mask = draw(length, batch=4, heads=3, symmetric=symmetric), make_mask(name, length)
        expected = run(relation_kl_reference, tensors, 3, mask)
        for _ in range(3):
            found = run(relation_kl_blocked, tensors, 3, mask, block=1 << 12)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_scratch_is_used_again():
    scratch, like = Scratch(), torch.zeros(0)
    first = scratch.take("a", (4, 5), like, torch.float32)
    assert scratch.take("a", (2, 3), like, torch.float32).data_ptr() == first.data_ptr()
    assert scratch.take("b", (4, 5), like, torch.float32).data_ptr() != first.data_ptr()
    assert scratch.take("a", (7, 5), like, torch.float32).shape == (7, 5)


# Each thread writes its scratch, waits for others to do so, and reads it again.
SOURCE = """
#include "team.h"
typedef struct { int64_t *times; float *kept; } counts;
void count(const void *given, int64_t first, int64_t last, float *scratch) {
    const counts *of = given;
    for (int64_t unit = first; unit < last; unit++) {
        scratch[0] = scratch[15] = (float)unit;
        for (volatile int wait = 0; wait < 20000; wait++);
        of->kept[unit] = scratch[0] == scratch[15] ? scratch[0] : -1;
        __atomic_fetch_add(of->times + unit, 1, __ATOMIC_RELAXED);
    }
}
"""


class Counts(ctypes.Structure):
    _fields_ = (("times", ctypes.c_void_p), ("kept", ctypes.c_void_p))


@pytest.fixture
def count(compiler, tmp_path):
    source = tmp_path / "count.c"
    source.write_text(SOURCE)
    shutil.copy(Path(team.__file__).with_name("team.h"), tmp_path)
    made = compile_kernel(source, lambda library: TeamKernel.read(library, "count"), lambda _: True)
    assert not isinstance(made, str), made
    return made


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("openmp", [True, False], ids=["OpenMP", "a pool"])
def test_every_part_is_computed_once(count, threads, openmp, two_threads, monkeypatch):
    torch.set_num_threads(threads)
    if openmp and torch.backends.openmp.is_available():
        monkeypatch.setattr(workers, "run_tasks", None)  # It must not be asked.
    elif not openmp:
        monkeypatch.setattr(team, "_openmp_runner", lambda: None)
    ends = [0, 1, 5, 6, 30, 200]
    parts = torch.tensor(list(pairwise(ends)))
    for number in (0, 1, len(parts)):
        times, kept = torch.zeros(200, dtype=torch.int64), torch.zeros(200)
        count.run(Counts(times.data_ptr(), kept.data_ptr()), parts[:number], 16, Scratch())
        assert times.tolist() == [1] * ends[number] + [0] * (200 - ends[number])
        assert kept[: ends[number]].tolist() == list(range(ends[number]))


FORKED = """
import os
import torch
from limbeck.kernels.packed_attention import packed_attention

torch.set_num_threads(2)
given = [torch.ones(2, 40, 16, dtype=torch.bfloat16)] * 3
whole = packed_attention(*given, [30, 10], scale=1.0)
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(packed_attention(*given, [30, 10], scale=1.0), whole) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.usefixtures("compiler")
def test_a_forked_process_does_not_wait_for_threads_of_its_parent():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_library_without_it_is_told():
    with pytest.raises(AttributeError, match="undefined symbol"):
        TeamKernel.read(ctypes.CDLL(None), "no_such_kernel")
