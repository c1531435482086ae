"""Similarity tasks: the cosine of sentence vectors, nothing trained."""

from __future__ import annotations

from typing import Any

from torch import nn

from limbeck.errors import CorpusError
from limbeck.evaluation.fine_tuning.cell import SimilarityPoint
from limbeck.evaluation.fine_tuning.prepared import PreparedTask
from limbeck.evaluation.sentence_vectors import pair_similarities
from limbeck.models.locating import sentence_pooling


def predict_similarities(
    model: nn.Module, tokenizer: Any, prepared: PreparedTask, split: str, point: SimilarityPoint, pooling: str
) -> list[float]:
    """Return the cosine of the two sentence vectors of every row of a split.

    Args:
        model: A loaded encoder.
        tokenizer: Its tokenizer.
        prepared: The task.
        split: Of pairs.
        point: The settings.
        pooling: `"mean"` or `"cls"`.

    Raises:
        CorpusError: if a row is no pair.
    """
    rows = prepared.rows[split]
    pairs = [(row.text, row.pair) for row in rows if row.pair is not None]
    if len(pairs) < len(rows):
        raise CorpusError(f"{prepared.task.title} has rows of one text in '{split}'; similarity is of pairs.")
    found = pair_similarities(model, tokenizer, pairs, pooling=pooling, max_length=point.length)
    return [float(value) for value in found]


def pooling_of(name: str, point: SimilarityPoint) -> str:
    """Return the pooling that is asked for, else the one that a model's folder names, else the mean."""
    if point.pooling is not None:
        return point.pooling
    folder = sentence_pooling(name)
    return "mean" if folder is None else folder.pooling
