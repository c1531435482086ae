"""Inspection: what a model looks like inside, alone or beside its teacher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limbeck.inspection.attention_divergence import AttentionDivergence, measure_divergence
    from limbeck.inspection.attention_maps import MEAN_HEAD, AttentionMap, AttentionMaps, draw_maps
    from limbeck.inspection.conll import ChunkedText, Span, read_chunks
    from limbeck.inspection.contribution import Contribution, measure_contribution
    from limbeck.inspection.layer_similarity import LayerSimilarity, measure_similarity
    from limbeck.inspection.phrase_clustering import LayerScores, PhraseClustering, SpanSample, cluster_phrases
    from limbeck.inspection.subject import Subject, load_subject
    from limbeck.inspection.texts import SENTENCES, read_texts

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
    "attention_divergence": ("AttentionDivergence", "measure_divergence"),
    "attention_maps": ("MEAN_HEAD", "AttentionMap", "AttentionMaps", "draw_maps"),
    "conll": ("ChunkedText", "Span", "read_chunks"),
    "contribution": ("Contribution", "measure_contribution"),
    "layer_similarity": ("LayerSimilarity", "measure_similarity"),
    "phrase_clustering": ("LayerScores", "PhraseClustering", "SpanSample", "cluster_phrases"),
    "subject": ("Subject", "load_subject"),
    "texts": ("SENTENCES", "read_texts"),
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: a run reads one measure of layers, and needs no clustering."""
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"limbeck.inspection.{home}"), name)
    raise AttributeError(f"module 'limbeck.inspection' has no attribute '{name}'")
