"""Inspection of a model's layers, attention and phrases, alone or beside its teacher."""

from typing import TYPE_CHECKING

from limbeck.core import import_when_used

if TYPE_CHECKING:
    from limbeck.core.studies import MEAN_HEAD
    from limbeck.inspection.attention_divergence import measure_divergence
    from limbeck.inspection.attention_maps import draw_maps
    from limbeck.inspection.chunked_text import ChunkedText, Span, read_chunks
    from limbeck.inspection.layer_cosines import measure_contribution
    from limbeck.inspection.layer_similarity import measure_similarity
    from limbeck.inspection.phrases import cluster_phrases
    from limbeck.inspection.results import (
        AttentionDivergence,
        AttentionMap,
        AttentionMaps,
        Contribution,
        LayerScores,
        LayerSimilarity,
        PhraseClustering,
        SpanSample,
    )
    from limbeck.inspection.subject import Subject, load_subject
    from limbeck.inspection.texts import SENTENCES, read_texts

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "attention_divergence": "measure_divergence",
        "attention_maps": "MEAN_HEAD draw_maps",
        "chunked_text": "ChunkedText Span read_chunks",
        "layer_cosines": "measure_contribution",
        "layer_similarity": "measure_similarity",
        "phrases": "cluster_phrases",
        "results": (
            "AttentionDivergence AttentionMap AttentionMaps Contribution LayerScores LayerSimilarity PhraseClustering "
            "SpanSample"
        ),
        "subject": "Subject load_subject",
        "texts": "SENTENCES read_texts",
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
