"""A C compiler, two threads for what threads share, and for Triton's kernels small tiles and memory that holds NaN."""

import os
import platform
import shutil
from pathlib import Path

import pytest
import torch

from limbeck.kernels import relation_triton


@pytest.fixture
def compiler():
    """The C compiler of this machine; tests that need one are skipped without."""
    found = os.environ.get("CC") or "cc"
    if shutil.which(found) is None or not Path("/proc/cpuinfo").is_file():
        pytest.skip("no C compiler, or another system than Linux")
    return found


@pytest.fixture(params=["-mno-amx-bf16", "-mno-avx512bf16", "-mno-avx512f"])
def poorer_compiler(request, compiler, tmp_path):
    """A compiler that does not know some instructions, for processors that lack them."""
    if platform.machine() != "x86_64":
        pytest.skip("the options are those of compilers for x86-64")
    own = tmp_path / "cc"
    own.write_text(f'#!/bin/sh\nexec {compiler} "$@" {request.param}\n')
    own.chmod(0o755)
    return str(own)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def written(monkeypatch, request):
    """Tiles of 16 tokens, so that short texts have several; memory for results is NaN. Yields the memory's sizes."""
    sizes = []

    def allocate(like, shape, dtype):
        made = like.new_full(shape, float("nan"), dtype=dtype)
        sizes.append(made.numel())
        return made

    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(relation_triton, "allocate", allocate)
        monkeypatch.setattr(relation_triton, "TILE", 16)
        monkeypatch.setattr(relation_triton, "TILE_OF_LARGE_HEADS", 16)
    return sizes
