"""What a model predicts for the rows of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class AnswerPrediction:
    """The answer to one question.

    Attributes:
        text: The best answer that is not empty.
        null_odds: Score of no answer less the score of `text`; where it is above a threshold the answer is empty.
    """

    text: str
    null_odds: float = 0.0


Predictions: TypeAlias = Sequence[int] | Sequence[float] | Mapping[str, AnswerPrediction]
"""A class number or a value per row, in their order; or, of questions, an answer per row id."""
