"""The Triton backend's own: its tiles, head sizes and formats, its registration with PyTorch, and its memory.

It runs on a GPU where there is one, in Triton's interpreter otherwise.
"""

import pytest
import torch

pytest.importorskip("triton")

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from limbeck.kernels import relation_kl_reference, relation_kl_triton, relation_triton
from limbeck.objectives import relation_kl
from tests.kernels.relation_cases import DEVICE, doubles, draw, draw_with_common_offset, run
from tests.support.masks import make_mask
from tests.support.tensors import errors

either_pair = pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])


def draw_here(length=7, batch=1, **options):
    return draw(length, batch=batch, **{"device": DEVICE, "dtype": torch.float32} | options)


def one_row(name, length):
    return make_mask(name, length)[1:2].to(DEVICE)


@pytest.mark.parametrize(
    ("sizes", "dtype", "symmetric"),
    [
        ((4, 8), torch.float32, False),
        ((8, 16), torch.float32, True),
        ((8, 16), torch.bfloat16, False),
        ((8, 16), torch.bfloat16, True),
        ((8, 16), torch.float16, False),
        ((12, 12), torch.bfloat16, True),
        ((16, 20), torch.float32, False),
        ((20, 64), torch.float16, True),
        ((64, 4), torch.bfloat16, False),
        ((70, 40), torch.float32, True),
    ],
)
def test_every_head_size_and_dtype(sizes, dtype, symmetric):
    """The gradient's error against float64 is at most twice that of the reference in the same dtype."""
    tensors, mask = draw_here(18, sizes=sizes, dtype=dtype, symmetric=symmetric), one_row("gaps", 18)
    value, gradient = run(relation_kl_triton, tensors, mask=mask)
    exact, exact_gradient = run(relation_kl_reference, doubles(tensors), mask=mask)
    _, plain_gradient = run(relation_kl_reference, tensors, mask=mask)
    assert gradient.dtype == dtype
    torch.testing.assert_close(value.double(), exact, rtol=2e-6, atol=0)
    assert (gradient - exact_gradient).norm() <= 2 * (plain_gradient - exact_gradient).norm()


def summed_from_the_last(self, left, right, start, *_):
    """A product of Triton's interpreter, its coordinates added in another order."""
    total = start.data.copy()
    for k in reversed(range(left.data.shape[1])):
        total += left.data[:, k, None].astype(total.dtype) * right.data[k].astype(total.dtype)
    return TensorHandle(total, start.dtype.scalar)


@pytest.mark.skipif(DEVICE != "cpu", reason="products of a GPU cannot be replaced")
@either_pair
def test_both_passes_may_round_products_differently(symmetric, monkeypatch):
    """The backward pass takes products again, and no tile or instruction promises the bits of the forward pass."""
    backward = relation_triton._backward

    def backward_by_other_products(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(InterpreterBuilder, "create_dot", summed_from_the_last)
            return backward(*arguments)

    monkeypatch.setattr(relation_triton, "_backward", backward_by_other_products)
    own, plain, exact = [], [], []
    for seed in range(8):
        tensors = draw_with_common_offset(seed, symmetric)
        own.append(run(relation_kl_triton, tensors))
        plain.append(run(relation_kl_reference, tensors))
        exact.append(run(relation_kl_reference, doubles(tensors)))
    assert errors(own, exact)[1] <= 1.5 * errors(plain, exact)[1]


@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply:RuntimeWarning")  # NumPy's, interpreting
def test_padding_gets_zero_whatever_comes_from_above():
    tensors, mask = draw_here(), one_row("right", 7)
    _, gradient = run(relation_kl_triton, tensors, mask=mask, upstream=float("inf"))
    gradient = gradient.view(2, *tensors[0].shape)
    assert not gradient[:, ~mask].any()
    assert not gradient[:, mask].isfinite().any()


def test_mixed_sharing_and_dtypes():
    """Vectors that are one for the student only, or that come in two formats, are pairs; coordinates lie anywhere."""
    student_a, student_b, teacher_a, teacher_b = draw_here()
    for tensors in (
        (student_a, student_a, teacher_a, teacher_b),
        (student_a, student_b, teacher_a, teacher_a),
        (student_a, student_b, teacher_a.bfloat16(), teacher_b),
        (student_a, student_b, teacher_a.half(), teacher_b.half()),
    ):
        value, gradient = run(relation_kl_triton, tensors)
        exact, exact_gradient = run(relation_kl_reference, doubles(tensors))
        torch.testing.assert_close(value.double(), exact, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-5, atol=3e-6)
    transposed = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in draw_here()]
    torch.testing.assert_close(relation_kl_triton(*transposed, 2), relation_kl_reference(*transposed, 2))


def test_memory_grows_with_the_length_only(written):
    """Neither made nor kept is a tensor of logits: six numbers for each row and head are."""
    heads, kept = 2, []
    for length in (16, 48):
        written.clear()
        kept.clear()
        tensors = [x.requires_grad_() for x in draw_here(length, heads=heads)]
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
            value = relation_kl_triton(*tensors, heads)
        value.backward()
        rows, sizes = heads * length, [x.numel() for x in tensors]
        assert sum(kept) == sum(sizes) + 6 * rows
        assert sum(written) == rows + 6 * rows + sum(sizes[:2])


@either_pair
def test_registration(symmetric):
    """Schema, shapes without data, and autograd, as `torch.compile` relies on them."""
    student_a, student_b, teacher_a, teacher_b = draw_here(symmetric=symmetric)
    student_a, student_b = student_a.requires_grad_(), None if symmetric else student_b.requires_grad_()
    mask = one_row("gaps", 7)
    forward = torch.ops.limbeck.relation_kl_forward
    vectors = (student_a, student_b, teacher_a, None if symmetric else teacher_b)
    torch.library.opcheck(forward, (*vectors, mask, 2, False))
    _, *terms = forward(*vectors, mask, 2, False)
    constants = [x if x is None else x.detach() for x in (*vectors, mask, *terms)]
    upstream = torch.tensor(2.0, device=DEVICE)
    torch.library.opcheck(torch.ops.limbeck.relation_kl_gradient, (upstream, *constants, True, symmetric, False))


def test_whoever_watches_operations_sees_it():
    """Fake tensors reach no kernel, and a trace has the operation, where outside of both none is registered."""
    tensors = draw_here()
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(x).requires_grad_() for x in tensors]
        value = relation_kl_triton(*fake, 2)
        value.backward()
        assert (value.shape, fake[0].grad.shape) == ((), tensors[0].shape)
    traced = make_fx(lambda *x: relation_kl_triton(*x, 2))(*tensors)
    assert any(node.target is torch.ops.limbeck.relation_kl_forward.default for node in traced.graph.nodes)


@pytest.mark.filterwarnings("ignore::UserWarning:torch.*")  # the compiler asks non-leaf tensors for .grad
@either_pair
def test_compiled_in_one_graph(symmetric):
    """No compiler is needed: "aot_eager" makes the graphs of both passes and runs them as they are."""
    student_a, student_b, *teacher = draw_here(symmetric=symmetric)
    mask = one_row("gaps", 7)

    def loss(x, y):
        a, b = x * 2, y * 2
        return relation_kl(a, a if symmetric else b, *teacher, heads=2, valid=mask, backend="triton").mean

    inputs = [student_a.requires_grad_(), student_b.requires_grad_()]
    gradients = []
    for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        value = function(*inputs)
        gradients.append(torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True))
    torch.testing.assert_close(gradients[1], gradients[0])
