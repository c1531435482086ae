"""Masks of every shape a batch may have: where the real tokens are, bool `[4, L]`."""

import torch

NAMES = ("none", "full", "right", "left", "gaps", "empty row")


def make_mask(name, length):
    """Bool `[4, length]`, or None for "none"."""
    position = torch.arange(length)
    lengths = torch.tensor([length, max(1, length // 2), max(1, length - 1), 1])[:, None]
    if name == "none":
        return None
    if name == "full":
        return torch.ones(4, length, dtype=torch.bool)
    if name == "right":
        return position < lengths
    if name == "left":
        return position >= length - lengths
    mask = torch.rand(4, length, generator=torch.Generator().manual_seed(length)) < 0.6
    mask[:, 0] |= ~mask.any(1)
    if name == "empty row":
        mask[2] = False
    return mask
