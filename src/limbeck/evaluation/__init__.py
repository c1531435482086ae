"""Evaluation: what a student costs and what it is worth, beside its teacher."""

from limbeck.evaluation.agreement import Agreement, SentencePair, build_pairs, measure_agreement
from limbeck.evaluation.compare import Comparison, ModelFigures, compare_models
from limbeck.evaluation.latency import BatchLatency, Latency, Times, measure_latency
from limbeck.evaluation.model_size import (
    ParameterCounts,
    count_parameters,
    tensors_megabytes,
    weights_megabytes,
)
from limbeck.evaluation.retrieval import Retrieval, build_retrieval_pairs, measure_retrieval
from limbeck.evaluation.sentence_vectors import encode, pair_similarities, spearman_agreement
from limbeck.evaluation.task_scores import TaskScores, measure_task

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
