"""The linear map by a matrix unit is as exact as PyTorch's, for any number of tokens."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from limbeck.kernels import tile_linear as module
from limbeck.kernels.tile_linear import can_map, lay_out, plain_weight, tile_linear
from limbeck.models.packing import PackedLinear

unit = pytest.mark.skipif(not torch.cpu._is_amx_tile_supported(), reason="no matrix unit (AMX)")
SHAPES = [(32, 32), (64, 96), (768, 768), (1536, 384)]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def in_float64(x, weight, bias):
    return F.linear(x.double(), weight.double(), None if bias is None else bias.double())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_weight_is_laid_out_and_back(shape):
    weight = draw(*shape)
    laid_out = lay_out(weight)
    assert laid_out.shape == (shape[0] // 32, shape[1] // 2, 32, 2)
    assert torch.equal(laid_out[0, 1, 5], weight[5, 2:4])
    assert torch.equal(plain_weight(laid_out), weight)


@pytest.mark.parametrize(
    "weight", [draw(32, 40), draw(40, 32), draw(32, 32).float(), draw(32, 32).half()], ids=lambda x: f"{x.dtype}"
)
def test_other_weights_are_left_to_onednn(weight):
    assert not can_map(weight)
    assert not PackedLinear(nn.Linear(40, 64, dtype=torch.bfloat16)).in_tiles


@unit
@pytest.mark.usefixtures("compiler", "two_threads")
@pytest.mark.parametrize("count", [1, 31, 32, 33, 400])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_it_is_as_exact_as_pytorch(shape, count, with_bias):
    (inputs, outputs), weight = reversed(shape), draw(*shape)
    x, bias = draw(count, inputs, seed=1), draw(outputs, seed=2) if with_bias else None
    assert can_map(weight)
    found = tile_linear(x, lay_out(weight), bias)
    wanted, usual = in_float64(x, weight, bias), F.linear(x, weight, bias)
    assert found.shape == wanted.shape and found.dtype == torch.bfloat16
    assert (found - wanted).norm() <= 1.01 * (usual - wanted).norm()


@unit
@pytest.mark.usefixtures("compiler", "two_threads")
def test_threads_and_strides_change_no_bit():
    weight, wide = draw(96, 64), draw(2, 70, 128, seed=3)
    laid_out = lay_out(weight)
    found = tile_linear(wide[..., 64:], laid_out, None)
    assert found.shape == (2, 70, 96)
    torch.set_num_threads(1)
    assert torch.equal(tile_linear(wide[..., 64:].contiguous(), laid_out, None), found)
    turned = wide[0, :64].T.contiguous().T[:, :64]
    assert turned.stride(1) != 1
    assert torch.equal(tile_linear(turned, laid_out, None), tile_linear(wide[0, :64, :64], laid_out, None))
    assert tile_linear(wide[:0, :, :64], laid_out, None).shape == (0, 70, 96)


@unit
@pytest.mark.usefixtures("compiler")
def test_products_of_onednn_in_between_are_right():
    """Both shape the unit's tiles, and must not find those of the other."""
    x, weight = draw(100, 64), draw(64, 64, seed=1)
    wanted = in_float64(x, weight, None)
    for _ in range(3):
        for found in (tile_linear(x, lay_out(weight), None), F.linear(x, weight), x[:7] @ weight.T):
            torch.testing.assert_close(found.double(), wanted[: len(found)], rtol=1e-2, atol=5e-2)


def test_without_a_unit_there_is_no_kernel(monkeypatch, request):
    request.addfinalizer(module.kernel.cache_clear)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    module.kernel.cache_clear()
    assert module.kernel() == "this CPU has no matrix unit (AMX)"
    assert not can_map(draw(32, 32))
