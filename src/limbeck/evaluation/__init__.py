"""Evaluation: cost and quality of models, a student beside its teacher, on tasks by the protocols of papers."""

from limbeck.core.timing import Times
from limbeck.evaluation.agreement import (
    Agreement,
    Retrieval,
    SentencePair,
    build_pairs,
    build_retrieval_pairs,
    measure_agreement,
    measure_retrieval,
)
from limbeck.evaluation.compare import Comparison, ModelFigures, TaskScores, compare_models, measure_task
from limbeck.evaluation.costs import (
    BatchLatency,
    Latency,
    ParameterCounts,
    count_parameters,
    measure_latency,
    tensors_megabytes,
    weights_megabytes,
)
from limbeck.evaluation.inference import encode, pair_similarities, spearman_agreement

__all__ = [
    "Agreement",
    "BatchLatency",
    "Comparison",
    "Latency",
    "ModelFigures",
    "ParameterCounts",
    "Retrieval",
    "SentencePair",
    "TaskScores",
    "Times",
    "build_pairs",
    "build_retrieval_pairs",
    "compare_models",
    "count_parameters",
    "encode",
    "measure_agreement",
    "measure_latency",
    "measure_retrieval",
    "measure_task",
    "pair_similarities",
    "spearman_agreement",
    "tensors_megabytes",
    "weights_megabytes",
]
