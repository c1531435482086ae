"""Freed memory stays with the process when it is told so, and goes when it is told to."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import psutil, torch
from limbeck.core import machine
kept = sys.argv[1] == "keep" and machine.keep_freed_memory()
def resident(): return psutil.Process().memory_info().rss
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20): torch.ones(12 << 20)
before = faults()
for _ in range(5): torch.ones(12 << 20)
taken, held = faults() - before, resident()
machine.release_freed_memory()
print(int(kept), taken, held - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc only")
def test_kept_memory_costs_no_new_pages_and_can_be_released():
    runs = {}
    for mode in ("keep", "default"):
        done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True)
        runs[mode] = [int(x) for x in done.stdout.split()]
    kept, faults, released = runs["keep"]
    if not kept:
        pytest.skip("the C library has no mallopt")
    # Five tensors of 48 MiB are 120 huge pages of 2 MiB, or more pages of other sizes.
    assert faults < 20 < runs["default"][1]
    assert released > 10e6
    assert runs["default"][2] < 10e6
