"""Evaluation: cost and quality of models, a student beside its teacher, on tasks by the protocols of papers.

`limbeck evaluate` goes through the folders in this order: `tasks` are described and read, `protocols` have their
settings and the papers' figures, the `plan` makes cells of a request, `evaluators` score them, the `run` carries them
out and writes their rows, and the `results` are tables and files for leaderboards. The planner asks the evaluator of
each task for its rows and its cells, so it imports `evaluators`, which build on all other files of `plan`.

The files beside them measure a student and its teacher on the held-out part of a run's corpus. `compare` is the whole,
with `agreement` over the pairs of `similarity_strata`, retrieval in `passages`, `costs` and `latency`. A teacher may
also be a `stored_side`, or several in a `combined_side`. `languages` has figures by language. Comparisons and searches
have `sentence_pairs` and `retrieval`. `held_out_scores` and `development_scores` are scores on labelled rows, and
`measures` are the options of a comparison or a search. Evaluators of vectors share `similarities` and the roles of
`retrieval` with them, and `languages` searches as evaluators do.
"""

from typing import TYPE_CHECKING

from limbeck.core import import_when_used
from limbeck.core.records import Agreement, BatchLatency, Latency, ModelFigures, Retrieval, Times
from limbeck.core.records import RunEvaluation as Comparison
from limbeck.core.records import TaskFigures as TaskScores

if TYPE_CHECKING:
    from limbeck.evaluation.agreement import measure_agreement
    from limbeck.evaluation.compare import Amounts, Side, Start, compare_models
    from limbeck.evaluation.costs import ParameterCounts, count_parameters, tensors_megabytes, weights_megabytes
    from limbeck.evaluation.evaluators.evaluator import (
        EVALUATORS,
        CellResult,
        Evaluator,
        register_as_evaluator,
    )
    from limbeck.evaluation.held_out_scores import measure_task
    from limbeck.evaluation.latency import measure_latency
    from limbeck.evaluation.retrieval import build_retrieval_pairs, measure_retrieval
    from limbeck.evaluation.sentence_pairs import SentencePair, build_pairs
    from limbeck.evaluation.similarities import pair_similarities, spearman_agreement
    from limbeck.models.inference import encode

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "agreement": "measure_agreement",
        "compare": "Amounts Side Start compare_models",
        "costs": "ParameterCounts count_parameters tensors_megabytes weights_megabytes",
        "evaluators.evaluator": "CellResult EVALUATORS Evaluator register_as_evaluator",
        "held_out_scores": "measure_task",
        "sentence_pairs": "SentencePair build_pairs",
        "similarities": "encode pair_similarities spearman_agreement",
        "latency": "measure_latency",
        "retrieval": "build_retrieval_pairs measure_retrieval",
    },
)

__all__ = [
    "EVALUATORS",
    "Agreement",
    "Amounts",
    "BatchLatency",
    "CellResult",
    "Comparison",
    "Evaluator",
    "Latency",
    "ModelFigures",
    "ParameterCounts",
    "Retrieval",
    "SentencePair",
    "Side",
    "Start",
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
    "register_as_evaluator",
    "spearman_agreement",
    "tensors_megabytes",
    "weights_megabytes",
]
