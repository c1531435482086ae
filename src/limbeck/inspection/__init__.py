"""Inspection: what a model looks like inside, alone or beside its teacher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limbeck.inspection.attention import (
        MEAN_HEAD,
        AttentionDivergence,
        AttentionMap,
        AttentionMaps,
        draw_maps,
        measure_divergence,
    )
    from limbeck.inspection.layers import Contribution, LayerSimilarity, measure_contribution, measure_similarity
    from limbeck.inspection.phrases import (
        ChunkedText,
        LayerScores,
        PhraseClustering,
        Span,
        SpanSample,
        cluster_phrases,
        read_chunks,
    )
    from limbeck.inspection.subject import SENTENCES, Subject, load_subject, read_texts

__all__ = [
    "MEAN_HEAD",
    "SENTENCES",
    "AttentionDivergence",
    "AttentionMap",
    "AttentionMaps",
    "ChunkedText",
    "Contribution",
    "LayerScores",
    "LayerSimilarity",
    "PhraseClustering",
    "Span",
    "SpanSample",
    "Subject",
    "cluster_phrases",
    "draw_maps",
    "load_subject",
    "measure_contribution",
    "measure_divergence",
    "measure_similarity",
    "read_chunks",
    "read_texts",
]

_HOMES = {
    "attention": (
        "MEAN_HEAD",
        "AttentionDivergence",
        "AttentionMap",
        "AttentionMaps",
        "draw_maps",
        "measure_divergence",
    ),
    "layers": ("Contribution", "LayerSimilarity", "measure_contribution", "measure_similarity"),
    "phrases": (
        "ChunkedText",
        "LayerScores",
        "PhraseClustering",
        "Span",
        "SpanSample",
        "cluster_phrases",
        "read_chunks",
    ),
    "subject": ("SENTENCES", "Subject", "load_subject", "read_texts"),
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: a run reads one measure of layers, and needs no clustering."""
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"limbeck.inspection.{home}"), name)
    raise AttributeError(f"module 'limbeck.inspection' has no attribute '{name}'")
