"""Inspection: what a model looks like inside, alone or beside its teacher."""

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
