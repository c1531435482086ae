"""Freed memory stays with the process when it is told so, and goes when it is told to."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, resource
import psutil, torch
from limbeck.core import memory
def resident(): return psutil.Process().memory_info().rss
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def measure():
    for _ in range(20): torch.ones(12 << 20)
    before = faults()
    for _ in range(5): torch.ones(12 << 20)
    taken, held = faults() - before, resident()
    memory.release_freed_memory()
    return taken, held - resident()
default = measure()
print(json.dumps([memory.keep_freed_memory(), default, measure()]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc only")
def test_kept_memory_costs_no_new_pages_and_can_be_released():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    kept, default, keeping = json.loads(done.stdout)
    if not kept:
        pytest.skip("the C library has no mallopt")
    # Five tensors of 48 MiB are 120 huge pages of 2 MiB, or more pages of other sizes.
    assert keeping[0] < 20 < default[0]
    assert keeping[1] > 10e6 > default[1]
