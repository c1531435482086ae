"""Inputs for the kernels of `relation_kl`, and one way to run a backend on them."""

import torch

STUDENT, TEACHER, HEADS = 12, 24, 3


def draw(seed, batch, length, *, symmetric=False, dtype=torch.float64, scale=1.5, near=None):
    """`(student_a, student_b, teacher_a, teacher_b)`; `near`: the student is the teacher plus that much noise."""
    generator = torch.Generator().manual_seed(seed)

    def normal(width):
        return torch.randn(batch, length, width, dtype=torch.float64, generator=generator) * scale

    teacher = [normal(TEACHER)] * 2 if symmetric else [normal(TEACHER), normal(TEACHER)]
    if near is None:
        student = [normal(STUDENT)] * 2 if symmetric else [normal(STUDENT), normal(STUDENT)]
    else:
        student = [teacher[0] + near * normal(TEACHER)]
        student.append(student[0] if symmetric else teacher[1] + near * normal(TEACHER))
    made = {id(x): x.to(dtype) for x in (*student, *teacher)}
    return tuple(made[id(x)] for x in (*student, *teacher))


def value_and_gradient(backend, tensors, valid=None, causal=False, upstream=1.0, **options):
    """The value, and the gradients of `student_a` and `student_b` (one when they are one tensor)."""
    made = {id(x): x.detach().clone().requires_grad_() for x in tensors[:2]}
    student = [made[id(x)] for x in tensors[:2]]
    value = backend(*student, *tensors[2:], HEADS, valid, causal, **options)
    gradients = torch.autograd.grad(value * upstream, list(made.values()))
    return value.detach(), gradients


def poison(tensors, valid):
    """The same with NaN at every position that is not valid."""
    if valid is None:
        return tensors
    made = {id(x): x.masked_fill(~valid[..., None], float("nan")) for x in tensors}
    return tuple(made[id(x)] for x in tensors)
