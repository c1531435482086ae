"""Objectives: pure functions from student and teacher streams to a `LossTerm`."""

from limbeck.objectives.hidden import hidden_cosine, hidden_mse
from limbeck.objectives.loss_term import LossTerm
from limbeck.objectives.pooled import pooled_cosine
from limbeck.objectives.registry import OBJECTIVES, Objective
from limbeck.objectives.relation import relation_kl
from limbeck.objectives.sample import sample_relation_kl

__all__ = [
    "OBJECTIVES",
    "LossTerm",
    "Objective",
    "hidden_cosine",
    "hidden_mse",
    "pooled_cosine",
    "relation_kl",
    "sample_relation_kl",
]
