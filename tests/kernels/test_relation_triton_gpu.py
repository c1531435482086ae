"""The Triton backend on a real GPU, in its real tiles; run with `-m gpu`."""

import pytest
import torch

from limbeck.kernels import choose_relation_backend, relation_kl_reference, relation_kl_triton
from limbeck.objectives import relation_kl
from tests.kernels.relation_cases import doubles, draw, run
from tests.support.tensors import EPS, errors

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def make_mask(seed, length, share):
    return torch.rand(2, length, generator=torch.Generator().manual_seed(seed)).cuda() < share


@pytest.mark.parametrize("near", [None, 0.1], ids=["far", "near"])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("length", "heads", "sizes"), [(128, 12, (8, 16)), (401, 4, (8, 16)), (70, 3, (20, 64)), (100, 1, (384, 768))]
)
def test_error_is_at_most_twice_that_of_plain_pytorch(length, heads, sizes, dtype, symmetric, near):
    sizes, found = sizes if near is None else (sizes[1], sizes[1]), []
    for seed in range(4):
        options = {"heads": heads, "sizes": sizes, "symmetric": symmetric, "near": near, "dtype": dtype}
        tensors, more = draw(length, seed=seed, device="cuda", **options), (make_mask(seed, length, 0.8), seed % 2 == 1)
        ways = (
            (relation_kl_triton, tensors),
            (relation_kl_reference, tensors),
            (relation_kl_reference, doubles(tensors)),
        )
        found.append([run(function, given, heads, *more) for function, given in ways])
    own, plain, exact = zip(*found, strict=True)
    assert (errors(own, exact) <= 2 * errors(plain, exact) + EPS).all()


def test_padding_may_hold_nan_and_results_repeat():
    tensors, mask = draw(130, heads=4, sizes=(8, 16), dtype=torch.bfloat16, device="cuda"), make_mask(0, 130, 0.6)
    mask[1] = False
    value, gradient = run(relation_kl_triton, tensors, 4, mask)
    for _ in range(3):
        again, same = run(relation_kl_triton, tensors, 4, mask)
        assert torch.equal(again, value)
        assert torch.equal(same, gradient)
    assert not gradient.view(2, *tensors[0].shape)[:, ~mask].any()


def test_exactly_zero_at_equality():
    for dtype in (torch.float32, torch.bfloat16):
        _, _, *teacher = draw(130, heads=4, sizes=(8, 8), dtype=dtype, device="cuda")
        value, gradient = run(relation_kl_triton, teacher * 2, 4)
        assert value == 0
        assert gradient.abs().max() < 1e-6


def test_auto_is_triton_in_one_compiled_graph():
    assert choose_relation_backend("auto", "cuda") == "triton"
    student, _, teacher, _ = draw(40, heads=4, sizes=(8, 16), dtype=torch.float32, symmetric=True, device="cuda")

    def loss(x):
        scaled = x * 2
        return relation_kl(scaled, scaled, teacher, teacher, heads=4).mean

    student = student.requires_grad_()
    compiled = torch.compile(loss, fullgraph=True)
    (gradient,) = torch.autograd.grad(compiled(student), student)
    torch.testing.assert_close(gradient, torch.autograd.grad(loss(student), student)[0])


def test_memory_holds_no_logits():
    peaks = {}
    tensors = draw(512, heads=48, sizes=(8, 16), dtype=torch.bfloat16, symmetric=True, device="cuda")
    for backend in (relation_kl_triton, relation_kl_reference):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(backend, tensors, 48)
        peaks[backend] = torch.cuda.max_memory_allocated() - before
    logits = 2 * 48 * 512**2 * 4
    assert peaks[relation_kl_triton] < logits / 4
    assert peaks[relation_kl_reference] > logits
