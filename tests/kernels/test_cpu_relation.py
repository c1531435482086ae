"""The compiled kernel computes relations and their gradients in float32, whatever the mask and the memory.

Its errors beside plain PyTorch's are a matter of `test_relation_backends`, whose bfloat16 it computes.
"""

import pytest
import torch

from limbeck.kernels import relation_kl_blocked, relation_kl_reference
from limbeck.kernels.cpu import relation as module
from tests.kernels.relation_cases import changed, doubles, draw, run
from tests.support.masks import NAMES, make_mask

pytestmark = pytest.mark.usefixtures("compiler")
either_pair = pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "pair"])


@pytest.fixture(autouse=True)
def computed(monkeypatch):
    """Every computation by the kernel has one entry."""
    calls, compute = [], module._compute

    def counted(*arguments):
        calls.append(arguments)
        return compute(*arguments)

    monkeypatch.setattr(module, "_compute", counted)
    return calls


def check(tensors, heads, mask=None):
    found = run(relation_kl_blocked, tensors, heads, mask)
    wanted = run(relation_kl_reference, doubles(tensors), heads, mask)
    assert abs(found[0].double() / wanted[0] - 1) <= 5e-6
    # The gradient is rounded to bfloat16 once, by half of 2^-8 at most.
    assert (found[1].double() - wanted[1]).norm() <= 4e-3 * wanted[1].norm()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [2, 15, 16, 17, 70])
@either_pair
def test_every_mask_and_length(length, name, symmetric, computed):
    tensors = draw(length, batch=4, heads=3, sizes=(8, 16), symmetric=symmetric, scale=1.5, dtype=torch.bfloat16)
    check(tensors, 3, make_mask(name, length))
    assert computed


@pytest.mark.parametrize("sizes", [(1, 3), (5, 20), (16, 32), (33, 64), (96, 96)], ids=str)
@either_pair
def test_every_head_size(sizes, symmetric, computed):
    check(draw(21, sizes=sizes, symmetric=symmetric, dtype=torch.bfloat16), 2, make_mask("gaps", 21)[:2])
    assert computed


@either_pair
def test_processors_without_these_instructions_compute_the_same(
    symmetric, poorer_compiler, computed, monkeypatch, request
):
    request.addfinalizer(module.kernel_or_reason.cache_clear)
    monkeypatch.setenv("CC", poorer_compiler)
    module.kernel_or_reason.cache_clear()
    check(draw(39, batch=4, sizes=(5, 16), symmetric=symmetric, dtype=torch.bfloat16), 2, make_mask("gaps", 39))
    assert computed


@pytest.mark.parametrize("block", [1, 100, 1 << 14])
def test_rows_in_work_do_not_matter(block, monkeypatch):
    tensors, mask = draw(50, batch=4, dtype=torch.bfloat16), make_mask("gaps", 50)
    wanted = run(relation_kl_blocked, tensors, mask=mask)
    monkeypatch.setattr(module, "BLOCK", block)
    found = run(relation_kl_blocked, tensors, mask=mask)
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-6, atol=0)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-2, atol=1e-3)


@either_pair
def test_threads_do_not_change_a_bit(two_threads, symmetric):
    tensors, mask = draw(40, batch=4, heads=6, symmetric=symmetric, dtype=torch.bfloat16), make_mask("right", 40)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(run(relation_kl_blocked, tensors, 6, mask))
    for each in found[1:]:
        torch.testing.assert_close(each, found[0], rtol=0, atol=0)


@pytest.mark.parametrize("length", [2, 15, 17, 18])
@pytest.mark.parametrize("far", ["student", "teacher", "both"])
def test_rows_whose_logits_all_lie_far_below_zero(far, length, computed):
    tensors = draw(length, sizes=(16, 16), symmetric=False, dtype=torch.bfloat16)
    for number, name in enumerate(("student", "teacher")):
        if far in (name, "both"):  # logits of about -16 * 36 / 4
            tensors[2 * number].copy_(tensors[2 * number] / 8 + 6)
            tensors[2 * number + 1].copy_(tensors[2 * number + 1] / 8 - 6)
    found, wanted = run(relation_kl_blocked, tensors), run(relation_kl_reference, doubles(tensors))
    assert computed
    for ours, exact in zip(found, wanted, strict=True):
        assert (ours.double() - exact).norm() <= 1e-2 * exact.norm()


@pytest.mark.parametrize("wants", [0, 1])
def test_a_gradient_of_one_side_alone(wants):
    tensors = draw(20, dtype=torch.bfloat16)
    both = run(relation_kl_blocked, tensors, upstream=1.0)[1].view(2, *tensors[0].shape)
    given = [x.clone().requires_grad_(place == wants) for place, x in enumerate(tensors)]
    relation_kl_blocked(*given, 2).backward()
    assert given[1 - wants].grad is None
    torch.testing.assert_close(given[wants].grad, both[wants], rtol=0, atol=0)


def test_vectors_whose_last_axis_is_apart():
    tensors = draw(20, dtype=torch.bfloat16)
    apart = changed(tensors, lambda x: x.mT.contiguous().mT)
    wanted = relation_kl_blocked(*tensors, 2)
    torch.testing.assert_close(relation_kl_blocked(*apart, 2), wanted, rtol=0, atol=0)


def test_what_is_not_a_number_stays_in_its_sample():
    tensors = draw(20, dtype=torch.bfloat16)
    tensors[0][0, 3, 0] = torch.nan
    leaf = tensors[0].requires_grad_()
    value = relation_kl_blocked(*tensors, 2)
    value.backward()
    assert value.isnan()
    assert leaf.grad[0].isnan().any()
    assert not leaf.grad[1].isnan().any()


@pytest.mark.parametrize(
    "tensors",
    [draw(9, dtype=torch.float32), [*draw(9, dtype=torch.bfloat16)[:2], *draw(9, dtype=torch.float32)[2:]]],
    ids=["float32", "teacher in float32"],
)
def test_other_formats_are_computed_by_pytorch(tensors, computed):
    run(relation_kl_blocked, tensors)
    assert not computed


def test_wide_heads_and_causal_rows_are_computed_by_pytorch(computed):
    run(relation_kl_blocked, draw(9, sizes=(97, 8), dtype=torch.bfloat16))
    run(relation_kl_blocked, draw(9, dtype=torch.bfloat16), causal=True)
    assert not computed
