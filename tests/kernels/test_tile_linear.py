"""Linear maps by a matrix unit, frozen and trained, are as exact as PyTorch's, for any number of tokens."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from limbeck.kernels import tile_linear as module
from limbeck.kernels.tile_linear import can_map, lay_out, plain_weight, tile_linear, trained_linear
from limbeck.models.packed_linear import PackedLinear

unit = pytest.mark.skipif(not torch.cpu._is_amx_tile_supported(), reason="no matrix unit (AMX)")
SHAPES = [(32, 32), (64, 96), (768, 768), (1536, 384)]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def in_float64(x, weight, bias):
    return F.linear(x.double(), weight.double(), None if bias is None else bias.double())


@unit
@pytest.mark.usefixtures("compiler", "two_threads")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_weight_is_laid_out_and_back(shape):
    weight = draw(*shape)
    laid_out = lay_out(weight)
    assert laid_out.shape == (shape[0] // 32, shape[1] // 2, 32, 2)
    assert torch.equal(laid_out[0, 1, 5], weight[5, 2:4])
    assert torch.equal(plain_weight(laid_out), weight)


@unit
@pytest.mark.usefixtures("compiler")
def test_other_weights_are_left_to_onednn():
    assert can_map(draw(32, 64))
    for weight in (draw(32, 40), draw(40, 32), draw(32, 64).float(), draw(32, 64).half()):
        assert not can_map(weight)
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        assert not PackedLinear(nn.Linear(40, 64, dtype=torch.bfloat16)).in_tiles


def packed_map():
    torch.manual_seed(6)
    linear = nn.Linear(64, 96, dtype=torch.bfloat16).requires_grad_(False)
    packed = PackedLinear(linear)
    assert packed.in_tiles
    return linear, packed


@unit
@pytest.mark.usefixtures("compiler")
def test_a_packed_map_computes_as_the_plain_one():
    linear, packed = packed_map()
    for x in (draw(64), draw(40, 64), draw(2, 3, 64), draw(0, 64)):
        torch.testing.assert_close(packed(x), linear(x), rtol=1e-2, atol=1e-2)
    wide = draw(5, 64).float().requires_grad_()
    wanted = F.linear(wide, linear.weight.float(), linear.bias.float())
    torch.testing.assert_close(packed(wide), wanted)
    (own,), (usual,) = (torch.autograd.grad(found.sum(), wide) for found in (packed(wide), wanted))
    torch.testing.assert_close(own, usual)
    assert torch.equal(copy.deepcopy(packed)(draw(40, 64)), packed(draw(40, 64)))
    plain = packed.unpacked()
    assert torch.equal(plain.weight, linear.weight) and torch.equal(plain.bias, linear.bias)


@unit
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("x", [draw(4, 65536), draw(40, 32), draw(40, 40)], ids=lambda x: str(tuple(x.shape)))
def test_activations_of_another_width_are_refused_as_by_pytorch(x):
    linear, packed = packed_map()
    for call in (packed, lambda x: trained_linear(x, linear.weight, linear.bias)):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            call(x)


@unit
@pytest.mark.usefixtures("compiler")
def test_what_no_kernel_can_read_is_computed_by_pytorch():
    linear, packed = packed_map()
    x, weight = draw(3, 5, 64), linear.weight.clone().requires_grad_()
    for call in (packed, lambda x: trained_linear(x, weight, None)):
        torch.testing.assert_close(torch.func.vmap(call)(x), call(x), rtol=1e-2, atol=1e-2)
    found = trained_linear(x, weight, None)
    upstream = draw(2, *found.shape, seed=4)
    (batched,) = torch.autograd.grad(found, weight, upstream, is_grads_batched=True, retain_graph=True)
    for row, given in zip(batched, upstream, strict=True):
        (wanted,) = torch.autograd.grad(found, weight, given, retain_graph=True)
        torch.testing.assert_close(row, wanted, rtol=2e-2, atol=0.1)


@unit
@pytest.mark.usefixtures("compiler")
def test_a_strided_bias_is_read_in_order():
    linear = nn.Linear(64, 96, dtype=torch.bfloat16).requires_grad_(False)
    linear.bias.set_(draw(96, 2)[:, 0])
    x = draw(4, 64)
    wanted = in_float64(x, linear.weight, linear.bias)
    for found in (PackedLinear(linear)(x), trained_linear(x, linear.weight, linear.bias)):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-2, atol=2e-2)


@unit
@pytest.mark.usefixtures("compiler")
def test_without_the_kernel_a_packed_map_still_computes(monkeypatch, request):
    linear, packed = packed_map()
    request.addfinalizer(module.kernel.cache_clear)
    monkeypatch.setenv("CC", "no-such-compiler")
    module.kernel.cache_clear()
    torch.testing.assert_close(packed(draw(40, 64)), linear(draw(40, 64)), rtol=1e-2, atol=1e-2)


@unit
def test_a_compiler_without_the_unit_is_told(poorer_compiler, monkeypatch, request):
    request.addfinalizer(module.kernel.cache_clear)
    monkeypatch.setenv("CC", poorer_compiler)
    module.kernel.cache_clear()
    assert module.kernel() == "the compiler or the system does not know this CPU's matrix unit (AMX)"


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


def operands_of(count, shape, *, bias=True, wide=torch.float32):
    """Tokens, a weight and a bias that are trained in a format, of numbers that bfloat16 has."""
    x, weight = draw(2, count, shape[1], seed=1), draw(*shape).to(wide)
    made = [x, weight, *([draw(shape[0], seed=2).to(wide)] if bias else [])]
    return [tensor.requires_grad_() for tensor in made]


def with_gradients(function, operands, upstream, *, autocast=False):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = function(*operands, *[None] * (3 - len(operands)))
    return [x.double() for x in (found, *torch.autograd.grad(found, operands, upstream.to(found.dtype)))]


@unit
@pytest.mark.usefixtures("compiler", "two_threads")
@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [1, 33, 200])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_gradients_are_as_exact_as_pytorchs(shape, count, bias, wide):
    operands = operands_of(count, shape, bias=bias, wide=wide)
    upstream = draw(2, count, shape[0], seed=3)
    exact = [x.detach().double().requires_grad_() for x in operands]
    wanted = with_gradients(F.linear, exact, upstream)
    usual = with_gradients(F.linear, operands, upstream, autocast=wide == torch.float32)
    ours = with_gradients(trained_linear, operands, upstream, autocast=wide == torch.float32)
    for found, other, right in zip(ours, usual, wanted, strict=True):
        assert (found - right).norm() <= 1.01 * (other - right).norm() + 1e-6 * right.norm()
    if wide == torch.float32:  # PyTorch rounds it to bfloat16.
        assert (ours[2] - wanted[2]).norm() < 0.01 * (usual[2] - wanted[2]).norm()


@unit
@pytest.mark.usefixtures("compiler")
def test_only_gradients_that_are_wanted_are_computed(monkeypatch):
    x, weight, bias = (tensor.detach() for tensor in operands_of(40, (64, 32)))
    called = []
    monkeypatch.setattr(module, "_gather", lambda *args, made=module._gather: called.append(args) or made(*args))
    with torch.autocast("cpu", torch.bfloat16):
        trained_linear(x.requires_grad_(), weight, bias).sum().backward()
        assert x.grad is not None and not called
        trained_linear(x.detach(), weight.requires_grad_(), bias).sum().backward()
    assert weight.grad is not None and len(called) == 1


@unit
@pytest.mark.usefixtures("compiler")
def test_gradients_are_differentiated_again():
    results = []
    for function in (trained_linear, F.linear):
        operands = operands_of(20, (32, 64))
        with torch.autocast("cpu", torch.bfloat16):
            found = function(*operands)
            (of_x,) = torch.autograd.grad((found * found).sum(), operands[0], create_graph=True)
        results.append(torch.autograd.grad((of_x * of_x).float().sum(), operands))
    for ours, usual in zip(*results, strict=True):
        assert (ours - usual).double().norm() < 0.02 * usual.double().norm()


@pytest.mark.parametrize(
    "operands",
    [
        (draw(3, 64).float(), draw(32, 64).float(), draw(32).float()),
        (draw(3, 64).double(), draw(32, 64).double(), None),
        (draw(3, 40), draw(32, 40), None),
        (draw(3, 64).half(), draw(32, 64).half(), None),
        (draw(0, 64), draw(32, 64), None),
        (draw(3, 64), draw(32, 64), draw(1)),
        (draw(3, 64), draw(64), None),
    ],
    ids=["float32", "float64", "40 inputs", "float16", "no tokens", "one bias", "one output"],
)
def test_other_products_are_pytorchs_own(operands, monkeypatch):
    monkeypatch.setattr(module._TileLinear, "apply", lambda *_: pytest.fail("the kernel was asked"))
    assert torch.equal(trained_linear(*operands), F.linear(*operands))


@unit
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("shape", [(64,), (5, 64), (2, 5, 64)], ids=str)
def test_results_can_be_changed_in_place(shape):
    x, weight = draw(*shape), draw(32, 64).requires_grad_()
    grads = []
    for function in (trained_linear, F.linear):
        found = function(x, weight, None)
        found += 1
        found.relu_()
        grads.append(torch.autograd.grad(found.sum(), weight)[0])
    torch.testing.assert_close(*grads, rtol=2e-2, atol=5e-2)


@unit
@pytest.mark.usefixtures("compiler")
def test_formats_and_transforms_are_as_of_pytorch():
    x, weight = draw(3, 64), draw(32, 64)
    with torch.autocast("cpu", torch.float16):
        assert trained_linear(x, weight, None).dtype == F.linear(x, weight).dtype == torch.float16
    for function in (trained_linear, F.linear):
        assert torch.func.grad(lambda w, f=function: f(x, w, None).sum())(weight).shape == weight.shape
        assert torch.func.vmap(lambda w, f=function: f(x, w, None))(weight.expand(2, 32, 64)).shape == (2, 3, 32)
    first = x[0].clone().requires_grad_()
    (of_x,) = torch.autograd.grad(trained_linear(first, weight, None).square().sum(), first, create_graph=True)
    assert torch.autograd.grad(of_x.sum(), first)[0].shape == first.shape


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
