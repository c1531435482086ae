"""Metrics: how many of a model's predictions are right, as each task's own script counts them."""

from limbeck.evaluation.metrics.answer_scores import AnswerScores, score_answers
from limbeck.evaluation.metrics.no_answer import best_threshold, no_answer_scores
from limbeck.evaluation.metrics.normalising import normalise_answer, normalise_answer_of
from limbeck.evaluation.metrics.scoring import METRICS, score
from limbeck.evaluation.tasks.predictions import AnswerPrediction, Predictions

__all__ = [
    "METRICS",
    "AnswerPrediction",
    "AnswerScores",
    "Predictions",
    "best_threshold",
    "no_answer_scores",
    "normalise_answer",
    "normalise_answer_of",
    "score",
    "score_answers",
]
