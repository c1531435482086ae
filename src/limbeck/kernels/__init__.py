"""Kernels: the objectives that would be slow or large written plainly, each beside its plain reference."""

from limbeck.kernels.dispatch import RELATION_BACKENDS, choose_relation_backend, relation_kl_total
from limbeck.kernels.precision import autocast_off, compute_dtype
from limbeck.kernels.relation_blocked import relation_kl_blocked
from limbeck.kernels.relation_reference import relation_kl_reference
from limbeck.kernels.relation_triton import relation_kl_triton
from limbeck.kernels.score_gram import score_distance

__all__ = [
    "RELATION_BACKENDS",
    "autocast_off",
    "choose_relation_backend",
    "compute_dtype",
    "relation_kl_blocked",
    "relation_kl_reference",
    "relation_kl_total",
    "relation_kl_triton",
    "score_distance",
]
