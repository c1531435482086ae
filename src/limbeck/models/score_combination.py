"""Scores of several teachers as those of one: the mean of their probabilities, or of the scores themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor


def combine_scores(
    scores: Sequence[Tensor], weights: Sequence[float], *, mean_of: Literal["probabilities", "logits"]
) -> Tensor:
    """Return the scores of several teachers as one, `[n, C]`.

    With weights that sum to 1, `probabilities` is log sum_i w_i softmax(z_i), whose softmax is the weighted mean of the
    teachers' probabilities; `logits` is sum_i w_i z_i.

    Args:
        scores: z_i, the scores of each teacher, `[n, C]`, of the same classes in the same order.
        weights: The weight of each teacher, above 0.
        mean_of: What the mean is of.
    """
    total = sum(weights)
    parts = []
    for teacher_scores, weight in zip(scores, weights, strict=True):
        share = weight / total
        if mean_of == "probabilities":
            # log (w p) = log w + log p; the sum over teachers is taken by logsumexp.
            log_share = torch.log(torch.tensor(share, device=teacher_scores.device))
            parts.append(teacher_scores.float().log_softmax(-1) + log_share)
        else:
            parts.append(teacher_scores.float() * share)
    stacked = torch.stack(parts)
    if mean_of == "probabilities":
        return stacked.logsumexp(0)
    return stacked.sum(0)
