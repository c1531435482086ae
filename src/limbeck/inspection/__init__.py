"""Inspection of a model's layers, attention and phrases, alone or beside its teacher."""

from typing import TYPE_CHECKING

from limbeck.core import import_when_used

if TYPE_CHECKING:
    from limbeck.inspection.attention import (
        MEAN_HEAD,
        AttentionDivergence,
        AttentionMap,
        AttentionMaps,
        draw_maps,
        measure_divergence,
    )
    from limbeck.inspection.layer_cosines import Contribution, measure_contribution
    from limbeck.inspection.layer_similarity import LayerSimilarity, measure_similarity
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

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "attention": "MEAN_HEAD AttentionDivergence AttentionMap AttentionMaps draw_maps measure_divergence",
        "layer_cosines": "Contribution measure_contribution",
        "layer_similarity": "LayerSimilarity measure_similarity",
        "phrases": "ChunkedText LayerScores PhraseClustering Span SpanSample cluster_phrases read_chunks",
        "subject": "SENTENCES Subject load_subject read_texts",
    },
)

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
