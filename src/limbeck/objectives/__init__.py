"""Objectives: pure functions from student and teacher streams to a `LossTerm`."""

from limbeck.objectives.earth_mover import EmdTerm, attention_layer_emd, layer_emd
from limbeck.objectives.labels import (
    hard_label_binary_ce,
    hard_label_ce,
    hard_label_mse,
    listwise_kl,
    margin_mse,
    masked_lm_ce,
    masked_lm_ce_from_hidden,
    soft_label_binary_kl,
    soft_label_kl,
    soft_label_kl_from_hidden,
    soft_label_mse,
)
from limbeck.objectives.registry import (
    OBJECTIVES,
    Benchmark,
    Objective,
    Workload,
    register_as_objective,
    register_objective,
)
from limbeck.objectives.relations import attention_score_mse, direct_mse, relation_kl
from limbeck.objectives.terms import LossTerm
from limbeck.objectives.vectors import (
    hidden_cosine,
    hidden_mse,
    patient_mse,
    pooled_cosine,
    pooled_distance,
    sample_contrastive,
    sample_relation_kl,
)

__all__ = [
    "OBJECTIVES",
    "Benchmark",
    "EmdTerm",
    "LossTerm",
    "Objective",
    "Workload",
    "attention_layer_emd",
    "attention_score_mse",
    "direct_mse",
    "hard_label_binary_ce",
    "hard_label_ce",
    "hard_label_mse",
    "hidden_cosine",
    "hidden_mse",
    "layer_emd",
    "listwise_kl",
    "margin_mse",
    "masked_lm_ce",
    "masked_lm_ce_from_hidden",
    "patient_mse",
    "pooled_cosine",
    "pooled_distance",
    "register_as_objective",
    "register_objective",
    "relation_kl",
    "sample_contrastive",
    "sample_relation_kl",
    "soft_label_binary_kl",
    "soft_label_kl",
    "soft_label_kl_from_hidden",
    "soft_label_mse",
]
