"""Merging heads, against a loop over groups."""

import torch

from limbeck.methods.composition import HeadGroups


def test_average_and_chosen_heads():
    stream = torch.randn(2, 3, 6 * 4)
    heads = stream.reshape(2, 3, 6, 4)
    averaged = HeadGroups(6, 3).merge(stream)
    chosen = HeadGroups(6, 3, (1, 0, 1)).merge(stream)
    assert averaged.shape == chosen.shape == (2, 3, 12)
    for group, pick in enumerate((1, 0, 1)):
        own = heads[:, :, 2 * group : 2 * group + 2]
        torch.testing.assert_close(averaged[..., 4 * group : 4 * group + 4], own.mean(2))
        assert torch.equal(chosen[..., 4 * group : 4 * group + 4], own[:, :, pick])
