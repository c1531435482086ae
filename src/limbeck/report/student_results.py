"""The figures of a run's evaluation as results of the Hub, for the front matter of a student's card.

A result of the Hub names a task, a data set and a metric, and has a value from 0 to 1.
"""

from collections.abc import Iterator

from huggingface_hub import EvalResult

from limbeck.core import records
from limbeck.core.escaping import one_line
from limbeck.kinds.scoring import METRIC_NAMES
from limbeck.report.card import hub_metric
from limbeck.report.names import metric_of_rows
from limbeck.report.reliable import is_reliable_agreement, is_reliable_retrieval

_PASSAGE_RETRIEVAL = "retrieving a passage by a sentence taken from it"
_SUMMARY_RETRIEVAL = "retrieving a text's body by its summary"
"""The retrieval of records of earlier versions."""


def held_out_results(evaluation: records.RunEvaluation, task_type: str) -> Iterator[EvalResult]:
    """Yield the figures on held-out text that are reliable; see `limbeck.report.reliable`.

    Args:
        evaluation: The evaluation of the run.
        task_type: The Hub's name of the student's task, such as `sentence-similarity`.
    """
    agreement = evaluation.agreement or records.Agreement()
    retrieval = evaluation.student.retrieval or records.Retrieval()
    asymmetric = evaluation.asymmetric or records.Retrieval()
    is_of_earlier_version = retrieval.measure is None
    search = _SUMMARY_RETRIEVAL if is_of_earlier_version else _PASSAGE_RETRIEVAL
    documents = "bodies" if is_of_earlier_version else "passages"
    pairs = "" if agreement.measure is None else " on pairs from far to near"
    figures = [
        ("spearmanr", f"Spearman agreement with the teacher{pairs}", agreement.spearman),
        ("mrr_at_10", f"MRR@10 ({search})", retrieval.mrr_at_10),
        ("recall_at_1", f"Recall@1 ({search})", retrieval.recall_at_1),
        ("ndcg_at_10", f"nDCG@10 ({search})", retrieval.ndcg_at_10),
        ("ndcg_at_10", f"nDCG@10 (as above, with {documents} encoded by the teacher)", asymmetric.ndcg_at_10),
    ]
    for metric, name, value in figures:
        if metric == "spearmanr":
            is_reliable = is_reliable_agreement(agreement)
        else:
            is_reliable = is_reliable_retrieval(evaluation.teacher.retrieval, metric)
        if value is not None and is_reliable:
            yield EvalResult(
                task_type=task_type,
                dataset_type="held-out",
                dataset_name="text held out from training",
                metric_type=metric,
                metric_name=name,
                metric_value=round(float(value), 4),
            )


def development_results(evaluation: records.RunEvaluation, task_type: str) -> Iterator[EvalResult]:
    """Yield the scores on development rows.

    Rows that were held out from the training files give no results, since the teacher may have seen them.

    Args:
        evaluation: The evaluation of the run.
        task_type: The Hub's name of the student's task, such as `text-classification`.
    """
    for scores in evaluation.development:
        for metric, value in scores.student.items():
            if metric in METRIC_NAMES and value is not None:
                yield EvalResult(
                    task_type=task_type,
                    dataset_type=one_line(scores.task),
                    dataset_name=one_line(scores.task),
                    dataset_split=one_line(scores.split),
                    metric_type=hub_metric(metric),
                    metric_name=f"{metric_of_rows(metric, scores)} on development rows",
                    metric_value=round(float(value), 4),
                )
