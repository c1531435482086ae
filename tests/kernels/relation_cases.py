"""Inputs for the kernels of `relation_kl`, and one way to run a backend on them."""

import importlib.util

import pytest
import torch

from limbeck.kernels.relation_triton import interpreting

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
#: Where Triton's kernels run: on a GPU where there is one, in its interpreter otherwise.
DEVICE = "cuda" if torch.cuda.is_available() and not interpreting() else "cpu"


def draw(
    length, *, seed=0, batch=2, heads=2, sizes=(4, 8), symmetric=False, near=None, scale=1.0, dtype=torch.float64,
    device="cpu",
):  # fmt: skip
    """`[student_a, student_b, teacher_a, teacher_b]`; `near`: the student is the teacher plus that much noise."""
    generator = torch.Generator().manual_seed(seed)

    def normal(size):
        return torch.randn(batch, length, heads * size, generator=generator, dtype=torch.float64) * scale

    teacher = [normal(sizes[1]) for _ in range(1 if symmetric else 2)]
    student = [normal(sizes[0]) if near is None else x + near * normal(sizes[1]) for x in teacher]
    student, teacher = ([x.to(device, dtype) for x in pair] for pair in (student, teacher))
    return [student[0], student[-1], teacher[0], teacher[-1]]


def draw_with_common_offset(seed, symmetric, device="cpu"):
    """Near ones in bfloat16 with two outlier coordinates, as transformers have them: logits of thousands.

    Differences of a few between them matter. Roundings of few large products decide about a draw's error.
    """
    tensors = draw(32, seed=seed, batch=1, sizes=(32, 32), symmetric=symmetric, near=0.05, device=device)
    offset = 90.0 * (torch.arange(64, device=device) % 32 < 2)
    return changed(tensors, lambda x: (x + offset).bfloat16())


def changed(tensors, change):
    """The same under a change of each tensor; those that are one stay one."""
    made = {id(x): change(x) for x in tensors}
    return [made[id(x)] for x in tensors]


def doubles(tensors):
    return changed(tensors, torch.Tensor.double)


def surrounded(x, mask):
    """The same vectors in the middle of a larger memory that is NaN, as padding is."""
    if mask is not None:
        x = x.masked_fill(~mask[..., None], float("nan"))
    memory = x.new_full([n + 3 for n in x.shape], float("nan"))
    return memory[1:-2, 2:-1, 1:-2].copy_(x)


def run(backend, tensors, heads=2, mask=None, causal=False, upstream=-1.7, **options):
    """The value, and the gradients of `student_a` and `student_b` (one when they are one tensor) in one row."""
    student, teacher = (changed(pair, lambda x: surrounded(x, mask).detach()) for pair in (tensors[:2], tensors[2:]))
    leaves = list({id(x): x.requires_grad_() for x in student}.values())
    value = backend(*student, *teacher, heads, mask, causal, **options)
    gradients = torch.autograd.grad(value * upstream, leaves)
    return value.detach(), torch.cat([x.flatten() for x in gradients])
