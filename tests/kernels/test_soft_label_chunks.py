"""Chunks of logits against all of them at once: value, gradients, memory, rounding."""

import pytest
import torch

from limbeck.errors import KernelError
from limbeck.kernels import soft_label_chunks
from limbeck.kernels.soft_label_chunks import Head, soft_label_kl_chunked
from tests.support.tensors import MadeTensors

ROWS, CLASSES, WIDTHS = 11, 13, (4, 6)


def plain(student, teacher, temperature=1.0, valid=None):
    """All logits at once, in the dtype of the arguments, then softmax in float32 or more."""
    heads = (student, teacher)
    own, other = (torch.nn.functional.linear(h.hidden.to(h.weight.dtype), h.weight, h.bias) for h in heads)
    if own.dtype != torch.float64:
        own, other = own.float(), other.float()
    own, other = ((x / temperature).log_softmax(-1) for x in (own, other))
    rows = torch.where(other.exp() > 0, other.exp() * (other - own), 0.0).sum(-1)
    return temperature**2 * (rows if valid is None else rows[valid]).sum()


def draw(seed=0, rows=ROWS, classes=CLASSES, widths=WIDTHS, bias=True, near=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    teacher = [normal(rows, widths[1]), normal(classes, widths[1]), normal(classes)]
    if near is None:
        student = [normal(rows, widths[0]), normal(classes, widths[0]), normal(classes)]
    else:
        student = [x + near * normal(*x.shape) for x in teacher]
    heads = [[x.to(dtype) for x in head] for head in (student, teacher)]
    return [Head(*head) if bias else Head(head[0], head[1], None) for head in heads]


def parts(head):
    return [x for x in (head.hidden, head.weight, head.bias) if x is not None]


def run(function, student, teacher, *arguments, upstream=1.0, **options):
    leaves = [x.detach().clone().requires_grad_() for x in parts(student)]
    value = function(Head(*leaves, *[None] * (3 - len(leaves))), teacher, *arguments, **options)
    return value.detach(), torch.autograd.grad(value * upstream, leaves)


def same(found, wanted):
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-12, atol=1e-14)
    for own, other in zip(found[1], wanted[1], strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 5, 11, 100])
@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_chunks_do_not_matter(rows, on_host, masked, bias, monkeypatch):
    """Slices, and the conversion's blocks, that divide nothing too."""
    student, teacher = draw(bias=bias)
    valid = torch.rand(ROWS, generator=torch.Generator().manual_seed(rows)) < 0.6 if masked else None
    wanted = run(plain, student, teacher, 1.7, valid, upstream=-2.3)
    for piece in (1, 3 * CLASSES + 1, 1 << 20):
        monkeypatch.setattr(soft_label_chunks, "CPU_SLICE", piece)
        options = {"chunk": rows * CLASSES + 1, "on_host": on_host}
        same(run(soft_label_kl_chunked, student, teacher, 1.7, valid, upstream=-2.3, **options), wanted)


@pytest.fixture
def shared_by_threads(two_threads, monkeypatch):
    monkeypatch.setattr(soft_label_chunks, "FEW_LOGITS", 0)


@pytest.mark.parametrize("masked", [True, False])
def test_the_same_on_several_threads(masked, shared_by_threads, monkeypatch):
    monkeypatch.setattr(soft_label_chunks, "CPU_SLICE", 2 * CLASSES)
    valid = torch.arange(ROWS) % 4 != 2 if masked else None
    student, teacher = draw()
    wanted = run(plain, student, teacher, 0.8, valid)
    for on_host in (True, False):
        same(run(soft_label_kl_chunked, student, teacher, 0.8, valid, chunk=5 * CLASSES, on_host=on_host), wanted)
    lower = [Head(*(x.bfloat16() for x in parts(head))) for head in (student, teacher)]
    _, found = run(soft_label_kl_chunked, *lower, chunk=5 * CLASSES)
    _, wanted = run(plain, *(Head(*(x.double() for x in parts(head))) for head in lower))
    assert all((own - exact).norm() <= 0.02 * exact.norm() for own, exact in zip(found, wanted, strict=True))


def test_inference_mode(shared_by_threads):
    student, teacher = draw()
    with torch.inference_mode():
        moved = [Head(*(x.clone() for x in parts(head))) for head in (student, teacher)]
        value = soft_label_kl_chunked(*moved, chunk=5 * CLASSES)
    torch.testing.assert_close(value.clone(), plain(student, teacher))


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e200])
def test_what_lies_in_rows_that_do_not_count(value, on_host):
    student, teacher = draw()
    valid = torch.arange(ROWS) % 3 != 1
    wanted = run(plain, student, teacher, 1.0, valid)
    student, teacher = (
        Head(h.hidden.masked_fill(~valid[:, None], value), h.weight, h.bias) for h in (student, teacher)
    )
    found = run(soft_label_kl_chunked, student, teacher, 1.0, valid, chunk=4 * CLASSES, on_host=on_host)
    same(found, wanted)
    assert not found[1][0][~valid].any()


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("rows", [0, 5])
def test_no_row_counts(rows, on_host):
    student, teacher = draw(rows=rows)
    valid = torch.zeros(rows, dtype=torch.bool)
    value, gradients = run(soft_label_kl_chunked, student, teacher, 1.0, valid, on_host=on_host)
    assert value == 0
    assert not any(x.any() for x in gradients)


@pytest.mark.parametrize("excluded", ["student", "teacher", "both"])
@pytest.mark.parametrize("masked", [True, False])
def test_excluded_classes(excluded, masked):
    """−inf in a bias: no probability, so no gradient from it unless the teacher has some there."""
    student, teacher = draw()
    for name, head in (("student", student), ("teacher", teacher)):
        if excluded in (name, "both"):
            head.bias[[2, 7]] = float("-inf")
    valid = torch.arange(ROWS) % 2 == 0 if masked else None
    found = run(soft_label_kl_chunked, student, teacher, 1.0, valid, chunk=3 * CLASSES, on_host=not masked)
    wanted = run(plain, student, teacher, 1.0, valid)
    assert all(x.isfinite().all() for x in found[1])
    if excluded == "student":
        assert found[0] == wanted[0] == float("inf")
    same((wanted[0], found[1]) if excluded == "student" else found, wanted)
    if excluded == "both":
        assert not found[1][1][[2, 7]].any()
        assert found[1][1].any()


def test_zero_at_equality():
    for dtype, least in ((torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 1e-6)):
        teacher = draw(dtype=dtype)[1]
        value, gradients = run(soft_label_kl_chunked, teacher, teacher, 2.0)
        assert value == 0
        assert all(x.abs().max() <= least for x in gradients)


@pytest.mark.parametrize("bias", [True, False])
def test_gradcheck(bias):
    student, teacher = draw(rows=3, classes=5, bias=bias)
    valid = torch.tensor([True, False, True])

    def total(*leaves):
        head = Head(*leaves, *[None] * (3 - len(leaves)))
        return soft_label_kl_chunked(head, teacher, 1.5, valid, chunk=5)

    assert torch.autograd.gradcheck(total, [x.requires_grad_() for x in parts(student)])


def test_no_second_derivative():
    student, teacher = draw()
    weight = student.weight.requires_grad_()
    with pytest.raises(KernelError, match="soft_label_kl_from_hidden has no second derivative.*soft_label_kl on"):
        torch.autograd.grad(soft_label_kl_chunked(student, teacher), weight, create_graph=True)


def test_a_kept_graph_gives_the_gradient_again():
    """The last backward pass scales in place what the ones before it had to leave alone."""
    student, teacher = draw()
    weight = student.weight.requires_grad_()
    value = soft_label_kl_chunked(student, teacher)
    first, second = (torch.autograd.grad(value * scale, weight, retain_graph=True)[0] for scale in (1.0, -3.0))
    (last,) = torch.autograd.grad(value * 0.5, weight)
    torch.testing.assert_close(second, first * -3)
    torch.testing.assert_close(last, first * 0.5)


def test_only_what_is_asked_for():
    wanted = run(plain, *draw())
    for position in range(3):
        student, teacher = draw()
        leaf = parts(student)[position].requires_grad_()
        for x in parts(teacher):
            x.requires_grad_()
        soft_label_kl_chunked(student, teacher).backward()
        torch.testing.assert_close(leaf.grad, wanted[1][position])
        assert sum(x.grad is not None for x in (*parts(student), *parts(teacher))) == 1


DTYPES = {
    "float32": (torch.float32, torch.float32),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "float16": (torch.float16, torch.float16),
    "bfloat16 on float32": (torch.bfloat16, torch.float32),
}


@pytest.mark.parametrize("near", [None, 0.1], ids=["far", "near"])
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
def test_error_is_at_most_twice_that_of_plain_pytorch(dtypes, near, monkeypatch):
    """Over many chunks, slices and blocks, against the same numbers in float64; relative, root mean square."""
    monkeypatch.setattr(soft_label_chunks, "CONVERTED", 2000)
    classes, errors = 700, {plain: [], soft_label_kl_chunked: []}
    for seed in range(4):
        drawn = draw(seed, 96, classes, (24, 48) if near is None else (24, 24), near=near)
        heads = [Head((h.hidden / 4).to(dtypes[0]), h.weight.to(dtypes[1]), h.bias.to(dtypes[1])) for h in drawn]
        exact = run(plain, *(Head(*(x.double() for x in parts(head))) for head in heads))
        for function, found in errors.items():
            options = {} if function is plain else {"chunk": 2 * classes}
            value, gradients = run(function, *heads, **options)
            row = [abs(value - exact[0]) / exact[0]]
            found.append(row + [(a - b).norm() / b.norm() for a, b in zip(gradients, exact[1], strict=True)])
    by_hand, own = (torch.tensor(x, dtype=torch.float64).square().mean(0).sqrt() for x in errors.values())
    # Where plain PyTorch is right by luck, one rounding of the result is not an error.
    allowed = 2 * by_hand + torch.finfo(torch.float32).eps
    assert (own <= allowed).all(), f"{own.tolist()} against {by_hand.tolist()}"


def test_float16_gradients_below_its_least_number():
    """Of many classes each gets next to nothing, and a loss scale comes only with the backward pass."""
    scale = 2.0**14
    heads = draw(rows=32, classes=20_000, widths=(4, 4), bias=False, near=1e-2, dtype=torch.float16)
    _, found = run(soft_label_kl_chunked, *heads, upstream=scale)
    _, wanted = run(plain, *(Head(*(x.double() for x in parts(h)), None) for h in heads), upstream=scale)
    for own, exact in zip(found, wanted, strict=True):
        assert (own - exact).norm() <= 1e-2 * exact.norm()


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_logits_of_all_rows(dtype, on_host, monkeypatch):
    """Nothing larger than a chunk of logits but the weight's gradient, and that only once."""
    rows, classes, widths, size = 64, 500, (4, 6), 5
    monkeypatch.setattr(soft_label_chunks, "CONVERTED", 400)
    student, teacher = draw(rows=rows, classes=classes, widths=widths, dtype=dtype)
    leaves = [x.requires_grad_() for x in parts(student)]
    for valid in (None, torch.arange(rows) % 3 > 0):
        for leaf in leaves:
            leaf.grad = None
        with MadeTensors([*leaves, *parts(teacher)]) as seen:
            value = soft_label_kl_chunked(student, teacher, 2.0, valid, chunk=size * classes, on_host=on_host)
            value.backward()
        assert seen.elements == size * classes
    with MadeTensors([*leaves, *parts(teacher)]) as seen:
        plain(student, teacher).backward()
    assert seen.elements == rows * classes


def test_the_weight_gradient_is_held_once():
    classes, width = 500, 40
    student, teacher = draw(rows=4, classes=classes, widths=(width, 6), dtype=torch.float32)
    weight = student.weight.requires_grad_()
    with MadeTensors([weight], classes * width) as seen:
        (soft_label_kl_chunked(student, teacher) * 3).backward()
    assert seen.large == {weight.grad.untyped_storage().data_ptr()}


def test_default_chunk_is_64_mebibytes():
    assert 4 * soft_label_chunks.CPU_CHUNK == 64 << 20
    student, teacher = draw(rows=600, classes=30_522, widths=(1, 1), bias=False, dtype=torch.float32)
    with torch.no_grad(), MadeTensors() as seen:
        soft_label_kl_chunked(student, teacher)
    assert seen.elements <= soft_label_chunks.CPU_CHUNK


def test_without_gradient_nothing_is_made_for_it():
    student, teacher = draw(rows=4, classes=500, widths=(40, 6))
    student.weight.requires_grad_()
    with torch.no_grad(), MadeTensors([*parts(student), *parts(teacher)]) as seen:
        value = soft_label_kl_chunked(student, teacher)
    assert not value.requires_grad
    assert seen.elements <= 4 * 500
