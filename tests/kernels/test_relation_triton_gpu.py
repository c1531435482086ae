"""The Triton backend on a real GPU, in its real tiles; run with `-m gpu`."""

import pytest
import torch

from limbeck.kernels import choose_relation_backend, relation_kl_reference, relation_kl_triton
from limbeck.objectives import relation_kl

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
EPS = torch.finfo(torch.float32).eps


def draw(seed, length, heads, sizes, dtype, symmetric, near=None):
    """Vectors of two samples; `near`: the student is the teacher plus that much noise."""
    generator = torch.Generator().manual_seed(seed)

    def normal(size):
        return torch.randn(2, length, heads * size, generator=generator, dtype=torch.float64)

    teacher = [normal(sizes[1]) for _ in range(1 if symmetric else 2)]
    student = [normal(sizes[0]) if near is None else x + near * normal(sizes[1]) for x in teacher]
    student, teacher = ([x.to("cuda", dtype) for x in pair] for pair in (student, teacher))
    return [student[0], student[-1], teacher[0], teacher[-1]]


def run(backend, tensors, heads, mask=None, causal=False):
    made = {id(x): x.detach().clone().requires_grad_() for x in tensors[:2]}
    value = backend(*(made[id(x)] for x in tensors[:2]), *tensors[2:], heads, mask, causal)
    gradients = torch.autograd.grad(value * -1.7, list(made.values()))
    return value.detach().double(), torch.cat([x.flatten() for x in gradients]).double()


@pytest.mark.parametrize("near", [None, 0.1], ids=["far", "near"])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("length", "heads", "sizes"), [(128, 12, (8, 16)), (401, 4, (8, 16)), (70, 3, (20, 64)), (100, 1, (384, 768))]
)
def test_error_is_at_most_twice_that_of_plain_pytorch(length, heads, sizes, dtype, symmetric, near):
    sizes = sizes if near is None else (sizes[1], sizes[1])
    found, scale = {relation_kl_triton: [], relation_kl_reference: []}, []
    for seed in range(4):
        tensors = draw(seed, length, heads, sizes, dtype, symmetric, near)
        mask = torch.rand(2, length, generator=torch.Generator().manual_seed(seed)).cuda() < 0.8
        made = {id(x): x.double() for x in tensors}
        exact, exact_gradient = run(relation_kl_reference, [made[id(x)] for x in tensors], heads, mask, seed % 2 == 1)
        scale.append((exact, exact_gradient.norm()))
        for backend, seen in found.items():
            value, gradient = run(backend, tensors, heads, mask, seed % 2 == 1)
            seen.append(((value - exact).abs(), (gradient - exact_gradient).norm()))
    own, plain = (torch.tensor(seen, dtype=torch.float64).square().mean(0).sqrt() for seen in found.values())
    assert (own <= 2 * plain + EPS * torch.tensor(scale, dtype=torch.float64).mean(0)).all(), f"{own} against {plain}"


def test_padding_may_hold_nan_and_results_repeat():
    tensors = draw(0, 130, 4, (8, 16), torch.bfloat16, symmetric=False)
    mask = torch.rand(2, 130, generator=torch.Generator().manual_seed(0)).cuda() < 0.6
    mask[1] = False
    value, gradient = run(relation_kl_triton, tensors, 4, mask)
    poisoned = [x.masked_fill(~mask[..., None], float("nan")) for x in tensors]
    for _ in range(3):
        again, same = run(relation_kl_triton, poisoned, 4, mask)
        assert torch.equal(again, value)
        assert torch.equal(same, gradient)
    assert not gradient.view(2, *tensors[0].shape)[:, ~mask].any()


def test_exactly_zero_at_equality():
    for dtype in (torch.float32, torch.bfloat16):
        _, _, *teacher = draw(0, 130, 4, (8, 8), dtype, symmetric=False)
        value, gradient = run(relation_kl_triton, teacher * 2, 4)
        assert value == 0
        assert gradient.abs().max() < 1e-6


def test_auto_is_triton_in_one_compiled_graph():
    assert choose_relation_backend("auto", "cuda") == "triton"
    student, _, teacher, _ = draw(0, 40, 4, (8, 16), torch.float32, symmetric=True)

    def loss(x):
        scaled = x * 2
        return relation_kl(scaled, scaled, teacher, teacher, heads=4).mean

    student = student.requires_grad_()
    compiled = torch.compile(loss, fullgraph=True)
    (gradient,) = torch.autograd.grad(compiled(student), student)
    torch.testing.assert_close(gradient, torch.autograd.grad(loss(student), student)[0])


def test_memory_holds_no_logits():
    peaks = {}
    tensors = draw(0, 512, 48, (8, 16), torch.bfloat16, symmetric=True)
    for backend in (relation_kl_triton, relation_kl_reference):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(backend, tensors, 48)
        peaks[backend] = torch.cuda.max_memory_allocated() - before
    logits = 2 * 48 * 512**2 * 4
    assert peaks[relation_kl_triton] < logits / 4
    assert peaks[relation_kl_reference] > logits
