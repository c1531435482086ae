"""Two threads for tests of what is shared by threads; small tiles, and memory that holds NaN, for Triton's kernels."""

import pytest
import torch

from limbeck.kernels import relation_triton


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
