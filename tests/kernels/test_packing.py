"""Groups hold every valid token once, waste little, and packing puts back what it took."""

import pytest
import torch

from limbeck.kernels.packed_attention import PADDING_ALLOWANCE, pack, plan_groups, unpack_into


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("block", [1, 500, 10**6])
def test_round_trip(block, on_host):
    torch.manual_seed(0)
    batch, length, heads = 9, 11, 2
    valid = torch.rand(batch, length) < torch.linspace(0, 1, batch)[:, None]
    x = torch.randn(batch, length, 6).masked_fill(~valid[..., None], float("nan"))
    back = torch.zeros_like(x)
    for group in plan_groups(x, valid, heads, block, on_host):
        out = torch.full((group.samples * heads, group.length, 3), float("nan"))
        units = pack(x, group, heads, out)
        assert units.isfinite().all()
        unpack_into(back, units.transpose(1, 2), group)
    assert torch.equal(back, x.nan_to_num())


def test_groups_waste_little():
    torch.manual_seed(0)
    lengths = torch.randint(16, 129, (64,))
    valid = torch.arange(128) < lengths[:, None]
    x, heads = torch.zeros(64, 128, 8), 4
    groups = list(plan_groups(x, valid, heads, 1 << 20, True))
    computed = sum(group.samples * group.length**2 for group in groups)
    assert computed <= PADDING_ALLOWANCE * lengths.square().sum()
    assert len(groups) < 24
    assert all(group.samples * group.length**2 * heads <= 1 << 20 for group in groups)


def test_full_batches_are_not_copied_by_index():
    x = torch.zeros(3, 5, 4)
    for valid in (None, torch.ones(3, 5, dtype=torch.bool)):
        assert all(g.index is None and g.filled is None for g in plan_groups(x, valid, 2, 1000, True))
