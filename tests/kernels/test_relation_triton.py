"""The Triton backend is the reference in tiles: on a GPU where there is one, in Triton's interpreter otherwise.

What goes through `run` has NaN at padding and around the vectors; memory that the kernels write holds NaN beforehand.
"""

import pytest
import torch

pytest.importorskip("triton")

from limbeck.kernels import relation_kl_reference, relation_kl_triton, relation_triton
from limbeck.kernels import relation_triton as relation_triton_launch
from limbeck.objectives import relation_kl
from tests.support.masks import NAMES, make_mask

DEVICE = "cuda" if torch.cuda.is_available() and not relation_triton_launch.interpreting() else "cpu"
EPS = torch.finfo(torch.float32).eps


@pytest.fixture(autouse=True)
def written(monkeypatch):
    """Tiles of 16 tokens, so that short texts have several; memory for results is NaN. Yields the memory's sizes."""
    sizes = []

    def allocate(like, shape, dtype):
        made = like.new_full(shape, float("nan"), dtype=dtype)
        sizes.append(made.numel())
        return made

    monkeypatch.setattr(relation_triton, "allocate", allocate)
    monkeypatch.setattr(relation_triton_launch, "TILE", 16)
    monkeypatch.setattr(relation_triton_launch, "TILE_OF_LARGE_HEADS", 16)
    return sizes


def draw(length, *, heads=2, sizes=(4, 8), batch=2, symmetric=False, dtype=torch.float32, scale=1.0, near=None, seed=0):
    """`(student_a, student_b, teacher_a, teacher_b)`; `near`: the student is the teacher plus that much noise."""
    generator = torch.Generator().manual_seed(seed)

    def normal(size):
        return torch.randn(batch, length, heads * size, generator=generator, dtype=torch.float64)

    drawn = []
    for position in range(1 if symmetric else 2):
        teacher = normal(sizes[1]) * scale
        student = normal(sizes[0]) * scale if near is None else teacher + near * normal(sizes[1])
        drawn[position:position] = [student.to(DEVICE, dtype)]
        drawn.append(teacher.to(DEVICE, dtype))
    return [drawn[0], drawn[0], drawn[1], drawn[1]] if symmetric else drawn


def surrounded(x, mask):
    """The same vectors in the middle of a larger memory that is NaN, as padding is."""
    if mask is not None:
        x = x.masked_fill(~mask[..., None], float("nan"))
    memory = x.new_full([n + 3 for n in x.shape], float("nan"))
    inside = memory[1:-2, 2:-1, 1:-2]
    return inside.copy_(x)


def run(backend, tensors, heads=2, mask=None, causal=False, upstream=-1.7):
    """The value, and the gradients of `student_a` and `student_b` (one when they are one tensor)."""
    made = {id(x): surrounded(x, mask) for x in tensors}
    student = {id(x): made[id(x)].detach().requires_grad_() for x in tensors[:2]}
    given = [student[id(x)] for x in tensors[:2]] + [made[id(x)] for x in tensors[2:]]
    value = backend(*given, heads, mask, causal)
    gradients = torch.autograd.grad(value * upstream, list(student.values()))
    return value.detach(), torch.cat([x.flatten() for x in gradients])


def doubles(tensors):
    made = {id(x): x.double() for x in tensors}
    return [made[id(x)] for x in tensors]


def mask_of(name, length):
    """Two of the four rows: a short one, and the one that "empty row" empties."""
    mask = make_mask(name, length)
    return None if mask is None else mask[1:3].to(DEVICE)


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])
@pytest.mark.parametrize("name", NAMES)
def test_every_mask(name, symmetric):
    length = 18
    mask = mask_of(name, length)
    tensors = draw(length, heads=1, symmetric=symmetric, scale=1.5)
    for causal in (False, True) if name in ("none", "left", "gaps") else (False,):
        value, gradient = run(relation_kl_triton, tensors, 1, mask, causal)
        exact, exact_gradient = run(relation_kl_reference, doubles(tensors), 1, mask, causal)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), exact, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-5, atol=3e-6)
        if mask is not None:
            assert not gradient.view(-1, *tensors[0].shape)[:, ~mask].any()


@pytest.mark.parametrize("length", [1, 7, 16, 17])
def test_every_length(length):
    tensors = draw(length, heads=3, batch=1)
    value, gradient = run(relation_kl_triton, tensors, heads=3)
    exact, exact_gradient = run(relation_kl_reference, doubles(tensors), heads=3)
    torch.testing.assert_close(value.double(), exact, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-5, atol=3e-6)


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
    tensors, mask = draw(18, batch=1, sizes=sizes, dtype=dtype, symmetric=symmetric), mask_of("gaps", 18)[:1]
    value, gradient = run(relation_kl_triton, tensors, mask=mask)
    exact, exact_gradient = run(relation_kl_reference, doubles(tensors), mask=mask)
    _, plain_gradient = run(relation_kl_reference, tensors, mask=mask)
    assert gradient.dtype == dtype
    torch.testing.assert_close(value.double(), exact, rtol=2e-6, atol=0)
    assert (gradient - exact_gradient).norm() <= 2 * (plain_gradient - exact_gradient).norm()


@pytest.mark.parametrize("near", [None, 0.1], ids=["far", "near"])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])
def test_error_is_at_most_twice_that_of_plain_pytorch(symmetric, near):
    """In float32 over several draws; near the teacher, value and gradient are small differences of large numbers."""
    found, sizes = {relation_kl_triton: [], relation_kl_reference: []}, []
    for seed in range(6):
        tensors = draw(18, heads=1, batch=1, sizes=(8, 8), symmetric=symmetric, near=near, seed=seed)
        exact, exact_gradient = run(relation_kl_reference, doubles(tensors), 1)
        sizes.append((exact, exact_gradient.norm()))
        for backend, seen in found.items():
            value, gradient = run(backend, tensors, 1)
            seen.append(((value - exact).abs(), (gradient - exact_gradient).norm()))
    own, plain = (torch.tensor(seen, dtype=torch.float64).square().mean(0).sqrt() for seen in found.values())
    # Where plain PyTorch is right by luck, one rounding of the result is not an error.
    assert (own <= 2 * plain + EPS * torch.tensor(sizes, dtype=torch.float64).mean(0)).all(), f"{own} against {plain}"


def test_large_logits_stay_finite():
    """Logits of some thousands, whose greatest moves from tile to tile."""
    tensors, mask = draw(18, heads=1, scale=60.0), mask_of("gaps", 18)
    value, gradient = run(relation_kl_triton, tensors, 1, mask)
    exact, exact_gradient = run(relation_kl_reference, doubles(tensors), 1, mask)
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=2e-3, atol=2e-3 * exact_gradient.abs().max())


@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply:RuntimeWarning")  # NumPy's, interpreting
def test_padding_gets_zero_whatever_comes_from_above():
    tensors, mask = draw(7, heads=1, batch=1), mask_of("right", 7)[:1]
    _, gradient = run(relation_kl_triton, tensors, 1, mask, upstream=float("inf"))
    gradient = gradient.view(2, *tensors[0].shape)
    assert not gradient[:, ~mask].any()
    assert not gradient[:, mask].isfinite().any()


def test_exactly_zero_at_equality():
    for dtype in (torch.float32, torch.bfloat16):
        _, _, *teacher = draw(18, heads=1, sizes=(8, 8), dtype=dtype)
        value, gradient = run(relation_kl_triton, teacher * 2, 1, mask_of("gaps", 18))
        assert value == 0
        assert not gradient.any()


def test_mixed_sharing_and_dtypes():
    """Vectors that are one for the student only, or that come in two formats, are pairs."""
    student_a, student_b, teacher_a, teacher_b = draw(7, batch=1)
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


def test_vectors_may_lie_in_any_order():
    """Heads taken out of a transposed layout, whose coordinates are no neighbours."""
    tensors = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in draw(7)]
    value = relation_kl_triton(*tensors, 2)
    torch.testing.assert_close(value, relation_kl_reference(*tensors, 2))


def test_memory_grows_with_the_length_only(written):
    """What is made and what is kept: no tensor of logits, and four numbers for each row and head."""
    batch, heads, kept = 1, 2, []
    for length in (16, 48):
        written.clear()
        kept.append([])
        tensors = [x.requires_grad_() for x in draw(length, batch=batch, heads=heads)]
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept[-1].append(x.numel()) or x, lambda x: x):
            value = relation_kl_triton(*tensors, heads)
        value.backward()
        rows = batch * heads * length
        vectors = sum(x.numel() for x in tensors)
        assert sum(kept[-1]) == vectors + 4 * rows
        assert sum(written) == rows + 4 * rows + sum(x.numel() for x in tensors[:2])


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])
def test_registration(symmetric):
    """Schema, shapes without data, and autograd, as `torch.compile` relies on them."""
    student_a, student_b, teacher_a, teacher_b = draw(7, batch=1, symmetric=symmetric)
    student_a, student_b = student_a.requires_grad_(), None if symmetric else student_b.requires_grad_()
    mask = mask_of("gaps", 7)[:1]
    forward = torch.ops.limbeck.relation_kl_forward
    vectors = (student_a, student_b, teacher_a, None if symmetric else teacher_b)
    torch.library.opcheck(forward, (*vectors, mask, 2, False))
    _, *terms = forward(*vectors, mask, 2, False)
    constants = [x if x is None else x.detach() for x in (*vectors, mask, *terms)]
    upstream = torch.tensor(2.0, device=DEVICE)
    torch.library.opcheck(torch.ops.limbeck.relation_kl_gradient, (upstream, *constants, True, symmetric, False))


@pytest.mark.filterwarnings("ignore::UserWarning:torch.*")  # the compiler asks non-leaf tensors for .grad
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])
def test_compiled_in_one_graph(symmetric):
    """No compiler is needed: "aot_eager" makes the graphs of both passes and runs them as they are."""
    student_a, student_b, *teacher = draw(7, batch=1, symmetric=symmetric)
    mask = mask_of("gaps", 7)[:1]

    def loss(x, y):
        a, b = x * 2, y * 2
        return relation_kl(a, a if symmetric else b, *teacher, heads=2, valid=mask, backend="triton").mean

    inputs = [student_a.requires_grad_(), student_b.requires_grad_()]
    gradients = []
    for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        value = function(*inputs)
        gradients.append(torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True))
    torch.testing.assert_close(gradients[1], gradients[0])
