"""Merging attention heads into fewer groups: how a student with few heads is given those of a teacher with many."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class HeadGroups:
    """Attention heads merged group by group: neighbours averaged, or one of them chosen.

    Args:
        heads: Attention heads of the stream; a multiple of `groups`.
        groups: Heads that are left.
        chosen: The head kept of each group, counted from 0 within it; None averages the group.

    Source:
        MLKD-BERT (arXiv 2407.02775) section 4.5: average and random mapping. Concat-split needs none of this: it is
        the plain division of the width.
    """

    heads: int
    groups: int
    chosen: tuple[int, ...] | None = None

    def merge(self, stream: Tensor) -> Tensor:
        """Merge the heads of a stream.

        Args:
            stream: `[B, L, heads * D]`, heads concatenated.

        Returns:
            `[B, L, groups * D]`.
        """
        size = stream.shape[-1] // self.heads
        split = stream.unflatten(-1, (self.groups, self.heads // self.groups, size))
        if self.chosen is None:
            return split.mean(-2).flatten(-2)
        groups = range(self.groups)
        return split[..., list(groups), list(self.chosen), :].flatten(-2)
