"""The blocked backend never makes a tensor of all heads' L×L, and its largest does not grow with the batch."""

import torch

from limbeck.kernels import relation_kl_blocked, relation_kl_reference
from tests.support.tensors import MadeTensors


def largest(backend, batch, length, heads, **options):
    student = torch.randn(batch, length, 2 * heads, requires_grad=True)
    teacher = torch.randn(batch, length, 4 * heads)
    with MadeTensors() as seen:
        backend(student, student, teacher, teacher, heads, **options).backward()
    return seen.elements


def test_no_tensor_of_all_logits():
    batch, length, heads, block = 4, 64, 12, 1 << 13
    vectors = batch * length * 4 * heads
    for on_host in (True, False):
        assert largest(relation_kl_blocked, batch, length, heads, block=block, on_host=on_host) <= max(
            3 * block, vectors
        )
    assert largest(relation_kl_reference, batch, length, heads) >= batch * heads * length**2


def test_default_block_is_a_few_megabytes():
    assert largest(relation_kl_blocked, 1, 600, 16) <= 3 << 20
    assert largest(relation_kl_blocked, 8, 128, 48) <= 3 << 20
