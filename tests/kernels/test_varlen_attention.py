"""Variable-length attention: how PyTorch's kernels are called; what they compute is for a GPU to show."""

import pytest
import torch

from limbeck.kernels import varlen_attention as module
from limbeck.kernels.varlen_attention import FORMATS, varlen_attention
from tests.support.attention import attend_samples, bounds_of

LENGTHS = (5, 1, 9, 3)


def drawn(size=8, **options):
    return [torch.randn(2, sum(LENGTHS), size, **options).requires_grad_() for _ in "qkv"]


@pytest.mark.parametrize("recent", [True, False])
@pytest.mark.parametrize("size", [8, 20, 264])
@pytest.mark.parametrize("dtype", FORMATS)
def test_the_kernels_take_what_they_are_given(dtype, size, recent, monkeypatch):
    """On no device at all: PyTorch checks arguments and shapes, and computes nothing."""
    monkeypatch.setattr(module, "_is_ampere_or_later", lambda device: recent)
    given = drawn(size, dtype=dtype, device="meta")
    context = varlen_attention(*given, bounds_of(LENGTHS).to("meta"), max(LENGTHS), scale=0.3, dropout=0.1)
    assert context.shape == (sum(LENGTHS), 2, size)
    flash = recent and dtype != torch.float32 and size <= 256
    nodes, seen = [context.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [following for following, _ in node.next_functions]
    names = {node.name() for node in seen}
    assert ("FlashAttentionBackward0" in names) == flash
    assert ("EfficientAttentionBackward0" in names) != flash
    if flash:
        assert [x.shape for x in torch.autograd.grad(context.sum(), given)] == [x.shape for x in given]


@pytest.mark.parametrize("size", [8, 5])
def test_samples_are_kept_apart(size, monkeypatch):
    monkeypatch.setattr(module, "_efficient", attend_samples)
    given = drawn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = varlen_attention(*given, bounds_of(LENGTHS), max(LENGTHS), scale=0.3)
    parts = zip(*(x.split(LENGTHS, dim=1) for x in given), strict=True)
    wanted = torch.cat([(q @ k.mT * 0.3).softmax(-1) @ v for q, k, v in parts], dim=1).transpose(0, 1)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(x.sin().sum(), given) for x in (found, wanted)]
    torch.testing.assert_close(*gradients)
