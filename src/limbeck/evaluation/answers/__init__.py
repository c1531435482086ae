"""Extractive answers: windows of contexts, and the best answer from the scores of their tokens."""

from limbeck.evaluation.answers.decoding import Span, best_span, decode_answers
from limbeck.evaluation.answers.windows import AnswerWindow, AnswerWindows

__all__ = ["AnswerWindow", "AnswerWindows", "Span", "best_span", "decode_answers"]
