"""Similarities of pairs of texts by a model's sentence vectors, and how far two models agree in them."""

from collections.abc import Sequence
from typing import TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from limbeck.models.inference import Encoding, encode_both
from limbeck.models.inference import encode as encode

Similarities: TypeAlias = ArrayLike
"""A number for each pair."""


def pair_similarities(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]], **encoding: Unpack[Encoding]
) -> Tensor:
    """Return each pair's cosine similarity, `[len(pairs)]`; a text in several pairs is encoded once.

    The arguments are those of `encode`.
    """
    firsts = [first for first, _ in pairs]
    seconds = [second for _, second in pairs]
    left, right = encode_both(model, tokenizer, firsts, seconds, **encoding)
    return (left * right).sum(-1)


def spearman_agreement(student_similarities: Similarities, teacher_similarities: Similarities) -> float:
    """Return Spearman's rank correlation (ties share their mean rank) between two lists of similarities.

    Returns:
        A number in [-1, 1]; NaN where it is undefined: fewer than two pairs, all similarities equal, or a NaN
        in them.
    """
    student = np.asarray(student_similarities, np.float64)
    teacher = np.asarray(teacher_similarities, np.float64)
    if student.shape != teacher.shape or student.ndim != 1:
        raise ValueError(
            f"student and teacher must be two lists of equal length, but their shapes are {student.shape} and "
            f"{teacher.shape}"
        )
    if len(student) < 2 or np.isnan(student).any() or np.isnan(teacher).any():
        return float("nan")
    # It takes a third of a second to import, which a run need not wait for.
    from scipy.stats import rankdata

    # Spearman's correlation is Pearson's correlation of the ranks, here centred on their mean.
    mean_rank = (len(student) + 1) / 2
    student_ranks = rankdata(student) - mean_rank
    teacher_ranks = rankdata(teacher) - mean_rank
    scale = np.sqrt((student_ranks**2).sum() * (teacher_ranks**2).sum())
    if scale == 0:
        # All similarities of a model are equal.
        return float("nan")
    return float((student_ranks * teacher_ranks).sum() / scale)
