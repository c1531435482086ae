"""The figures of a run's evaluation as results of the Hub, for the front matter of a student's card.

A result of the Hub names a task, a data set and a metric, and has a value from 0 to 1.
"""

from collections.abc import Iterator, Mapping, Sequence

from huggingface_hub import EvalResult

from limbeck.core import records
from limbeck.core.escaping import one_line
from limbeck.core.records.run_evaluation import SUMMARY_IN_BODIES
from limbeck.kinds.scoring import METRIC_NAMES
from limbeck.report.card import hub_metric
from limbeck.report.gains import gain_of
from limbeck.report.names import metric_of_rows
from limbeck.report.reliable import (
    interval_of_retrieval,
    is_reliable_agreement,
    is_reliable_retrieval,
    is_student_at_chance,
)
from limbeck.report.scored_rows import only_answer

_PASSAGE_RETRIEVAL = "retrieving a passage by a sentence taken from it"
_TEXT_RETRIEVAL = "finding a text by its title or first sentence"
"""The retrieval of text that has no passages."""
_SUMMARY_RETRIEVAL = "retrieving a text's body by its summary"
"""The retrieval of records of earlier versions."""


def held_out_results(evaluation: records.RunEvaluation, task_type: str) -> Iterator[EvalResult]:
    """Yield the figures on held-out text that are reliable, and clearly above those of the untrained start.

    For the first see `limbeck.report.reliable`, and for the second `limbeck.report.gains`. Figures of the retrieval are
    published only beside the MRR@10.

    Args:
        evaluation: The evaluation of the run.
        task_type: The Hub's name of the student's task, such as `sentence-similarity`.
    """
    start = evaluation.start or records.UntrainedStart()
    agreement = evaluation.agreement or records.Agreement()
    start_agreement = start.agreement or records.Agreement()
    if agreement.spearman is not None and is_reliable_agreement(agreement):
        name = "Spearman agreement with the teacher"
        # Records of earlier versions name no measure: their pairs were chosen in another way.
        if agreement.measure is not None:
            name += " on pairs from far to near"
        if _is_gained(agreement.spearman, start_agreement.spearman, agreement.interval):
            yield _held_out_result(task_type, "spearmanr", name, agreement.spearman)

    retrieval = evaluation.student.retrieval or records.Retrieval()
    asymmetric = evaluation.asymmetric or records.Retrieval()
    search, documents = _names_of_search(retrieval)
    figures = [
        ("mrr_at_10", f"MRR@10 ({search})", retrieval.mrr_at_10),
        ("recall_at_1", f"Recall@1 ({search})", retrieval.recall_at_1),
        ("ndcg_at_10", f"nDCG@10 ({search})", retrieval.ndcg_at_10),
        # The search in the teacher's passages was not measured at the start, so that of the student alone decides.
        ("ndcg_at_10", f"nDCG@10 (as above, with {documents} encoded by the teacher)", asymmetric.ndcg_at_10),
    ]
    published = _published_of_retrieval(evaluation)
    for metric, name, value in figures:
        if metric in published and value is not None:
            yield _held_out_result(task_type, metric, name, value)


def router_results(evaluation: records.RunEvaluation, task_type: str) -> Iterator[EvalResult]:
    """Yield the figures of a folder that encodes queries with the student, and documents with its teacher.

    They are published under the conditions of the student's own retrieval, see `held_out_results`: the search in the
    teacher's documents was not measured at the start.

    Args:
        evaluation: The evaluation of the run.
        task_type: As in `held_out_results`.
    """
    asymmetric = evaluation.asymmetric or records.Retrieval()
    search, documents = _names_of_search(asymmetric)
    search += f", with {documents} encoded by the teacher"
    figures = [
        ("mrr_at_10", f"MRR@10 ({search})", asymmetric.mrr_at_10),
        ("recall_at_1", f"Recall@1 ({search})", asymmetric.recall_at_1),
        ("ndcg_at_10", f"nDCG@10 ({search})", asymmetric.ndcg_at_10),
    ]
    published = _published_of_retrieval(evaluation)
    for metric, name, value in figures:
        if metric in published and value is not None:
            yield _held_out_result(task_type, metric, name, value)


def _names_of_search(retrieval: records.Retrieval) -> tuple[str, str]:
    """Return the name of a retrieval, and of the texts that are searched in it."""
    # Records of earlier versions name no measure.
    if retrieval.measure is None:
        return _SUMMARY_RETRIEVAL, "bodies"
    if retrieval.measure == SUMMARY_IN_BODIES:
        return _TEXT_RETRIEVAL, "texts"
    return _PASSAGE_RETRIEVAL, "passages"


def _published_of_retrieval(evaluation: records.RunEvaluation) -> set[str]:
    """Return the names of the student's figures of retrieval that are published."""
    start = evaluation.start or records.UntrainedStart()
    retrieval = evaluation.student.retrieval or records.Retrieval()
    start_retrieval = start.retrieval or records.Retrieval()
    is_gained_by_metric = {}
    for metric in ("mrr_at_10", "recall_at_1", "ndcg_at_10"):
        value = getattr(retrieval, metric)
        if value is not None and is_reliable_retrieval(evaluation.teacher.retrieval, start.untrained_retrieval, metric):
            is_gained = _is_gained(value, getattr(start_retrieval, metric), interval_of_retrieval(retrieval, metric))
            is_gained_by_metric[metric] = is_gained
    return _published(is_gained_by_metric, "mrr_at_10")


def _published_of_rows(scores: records.DevelopmentFigures) -> set[str]:
    """Return the names of the student's scores on development rows that are published.

    They are clearly above those of the untrained start, and those of a guesser.
    """
    is_gained_by_metric = {}
    for metric, value in scores.student.items():
        if metric in METRIC_NAMES and value is not None:
            is_gained = _is_gained(value, scores.start.get(metric), scores.intervals.get(metric))
            is_gained_by_metric[metric] = is_gained and not is_student_at_chance(scores, metric)
    return _published(is_gained_by_metric, scores.metric)


def _published(is_gained_by_metric: Mapping[str, bool], main_metric: str) -> set[str]:
    """Return the metrics of one measurement that are published: none, the main one, or all.

    A recall without its F1, or beside an F1 but without a precision that fell, would flatter the student.

    Args:
        is_gained_by_metric: Whether each figure is clearly above that of the untrained start.
        main_metric: The metric that counts most.
    """
    if not is_gained_by_metric.get(main_metric):
        return set()
    if all(is_gained_by_metric.values()):
        return set(is_gained_by_metric)
    return {main_metric}


def _is_gained(student: float | None, start: float | None, interval: Sequence[float | None] | None) -> bool:
    """Return whether a figure of the student is clearly above that of the untrained start, where that is known.

    Args:
        student: The student's figure.
        start: The untrained start's.
        interval: The 95 % interval of the student's.
    """
    gain = gain_of("", student, start, interval)
    return gain is None or gain.is_clear


def _held_out_result(task_type: str, metric: str, name: str, value: float) -> EvalResult:
    """Return a figure on held-out text as a result of the Hub; arguments as its fields."""
    return EvalResult(
        task_type=task_type,
        dataset_type="held-out",
        dataset_name="text held out from training",
        metric_type=metric,
        metric_name=name,
        metric_value=round(float(value), 4),
    )


def development_results(evaluation: records.RunEvaluation, task_type: str) -> Iterator[EvalResult]:
    """Yield the scores on development rows that are clearly above those of the untrained start.

    Further scores are published only beside the main one. A student that gives all rows one answer has none.

    Rows that were held out from the training files give no results, since the teacher may have seen them.

    Args:
        evaluation: The evaluation of the run.
        task_type: The Hub's name of the student's task, such as `text-classification`.
    """
    for scores in evaluation.development:
        if only_answer(scores) is not None:
            continue
        published = _published_of_rows(scores)
        for metric, value in scores.student.items():
            if metric in published and value is not None:
                yield EvalResult(
                    task_type=task_type,
                    dataset_type=one_line(scores.task),
                    dataset_name=one_line(scores.task),
                    dataset_split=one_line(scores.split),
                    metric_type=hub_metric(metric),
                    metric_name=f"{metric_of_rows(metric, scores)} on development rows",
                    metric_value=round(float(value), 4),
                )
