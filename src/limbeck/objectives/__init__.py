"""Objectives: pure functions from student and teacher streams to a `LossTerm`."""

from limbeck.objectives.attention import attention_score_mse
from limbeck.objectives.direct import direct_mse
from limbeck.objectives.hard_labels import hard_label_ce, hard_label_mse, soft_label_mse
from limbeck.objectives.hidden import hidden_cosine, hidden_mse
from limbeck.objectives.labels import masked_lm_ce, soft_label_kl
from limbeck.objectives.layer_emd import attention_layer_emd, layer_emd
from limbeck.objectives.loss_term import LossTerm
from limbeck.objectives.pooled import patient_mse, pooled_cosine
from limbeck.objectives.registry import OBJECTIVES, Objective, register_as_objective, register_objective
from limbeck.objectives.relation import relation_kl
from limbeck.objectives.sample import sample_contrastive, sample_relation_kl
from limbeck.objectives.soft_labels_from_hidden import soft_label_kl_from_hidden

__all__ = [
    "OBJECTIVES",
    "LossTerm",
    "Objective",
    "attention_layer_emd",
    "attention_score_mse",
    "direct_mse",
    "hard_label_ce",
    "hard_label_mse",
    "hidden_cosine",
    "hidden_mse",
    "layer_emd",
    "masked_lm_ce",
    "patient_mse",
    "pooled_cosine",
    "register_as_objective",
    "register_objective",
    "relation_kl",
    "sample_contrastive",
    "sample_relation_kl",
    "soft_label_kl",
    "soft_label_kl_from_hidden",
    "soft_label_mse",
]
