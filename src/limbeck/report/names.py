"""Names of runs, models and metrics in tables, cards and pages."""

from collections.abc import Sequence
from pathlib import Path

from limbeck.core.escaping import one_line
from limbeck.core.paths import short_model_name
from limbeck.core.records import DevelopmentFigures
from limbeck.core.studies import Column, EvaluationCell
from limbeck.evaluation.tasks.registry import TASKS

_DEFAULT_NAMES = ("", "run", "comparison", "mapping", "architecture", "teacher-layer")
"""Names that results have if the user gives none; they tell nothing, so the name of the folder is shown instead."""
_NAMED_SOURCES = ("package:", "hub:")
"""Beginnings of names that are no paths, however many slashes they have."""
_METRIC_OF_CLASS = "f1"
_KIND_OF_F1 = "classification"
_F1_OF_OLDER_RECORDS = "F1 (second class of two, else macro)"
"""The metric `f1` of records that do not name its class, which limbeck then chose by the number of classes."""
_METRICS = {
    "f1": "F1",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "weighted_f1": "weighted F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "f1_answer": "answer F1",
    "f1_entity": "entity F1",
    "precision_entity": "entity precision",
    "recall_entity": "entity recall",
    "ndcg_at_10": "nDCG@10",
    "mrr_at_10": "MRR@10",
    "accuracy_at_1": "accuracy@1",
    "recall_at_1": "recall@1",
    "recall_at_10": "recall@10",
    "recall_at_100": "recall@100",
    "map_at_1000": "MAP@1000",
    "cosine_spearman": "cosine Spearman",
    "v_measure": "V-measure",
    "exact_span": "exact answer windows",
    # Of sentence vectors. Runs have an agreement too, which is another figure.
    "agreement": "Spearman with the teacher's cosines",
}


def metric_name(metric: str, positive: str | None = None) -> str:
    """Return a metric as tables head it.

    Args:
        metric: Its name in records.
        positive: The class that `f1` is of; None where it is not known.
    """
    if metric == _METRIC_OF_CLASS and positive is not None:
        return f"F1 (positive: {one_line(positive)})"
    return _METRICS.get(metric, metric.replace("_", " "))


def metric_of_column(metric: str, column: Column) -> str:
    """Return a metric of a column of an evaluation as tables head it."""
    return _metric_of_task(metric, column.positive, column.task, column.kind)


def metric_of_cell(metric: str, cell: EvaluationCell) -> str:
    """Return a metric of a cell of an evaluation as tables head it; cells do not name the kind of their task."""
    return _metric_of_task(metric, cell.positive, cell.task, _KIND_OF_F1)


def metric_of_rows(metric: str, scores: DevelopmentFigures) -> str:
    """Return a metric of development rows as tables head it."""
    if scores.positive is None and scores.kind == _KIND_OF_F1 and metric == _METRIC_OF_CLASS:
        # Older records have the classes of most tasks beside the confusion matrix.
        if len(scores.labels) == 2:
            return metric_name(metric, scores.labels[1])
        if scores.labels:
            return metric_name("macro_f1")
    return _metric_of_task(metric, scores.positive, scores.task, scores.kind)


def _metric_of_task(metric: str, positive: str | None, task: str | None, kind: str | None) -> str:
    """Return a metric as tables head it; where a record names no class for `f1`, what that was when it was written.

    Args:
        metric: Its name.
        positive: The class in the record.
        task: Name of the task; a task that limbeck has by this name has always had its class.
        kind: Its kind. Kinds of plugins may have a metric of the same name that is something else.
    """
    if positive is None and task is not None and task in TASKS:
        positive = TASKS[task].positive
    if positive is None and metric == _METRIC_OF_CLASS and kind == _KIND_OF_F1:
        return _F1_OF_OLDER_RECORDS
    return metric_name(metric, positive)


def at_start(name: str) -> str:
    """Write a name with a capital letter, unless its first word has one."""
    words = name.split()
    if not words or not words[0].islower():
        return name
    return name[:1].upper() + name[1:]


def title_of(name: str | None, folder: Path) -> str:
    """Return the name of a result, or the name of its folder if the user gave the result no name of its own.

    Args:
        name: The name in the record.
        folder: Folder of the run, comparison or search.
    """
    title = " ".join((name or "").split())
    if title in _DEFAULT_NAMES:
        return folder.resolve().name or title
    return title


def without_path(name: str) -> str:
    """Return the last part of a path to a folder.

    Other names are returned as they are: those on the Hub, and sources such as `package:…` and `hub:…`.
    """
    if name.startswith(_NAMED_SOURCES):
        return name
    # A name on the Hub has one slash, as in `google/bert`, and no leading dot.
    is_path = name.startswith(("/", ".", "~")) or "\\" in name or name.count("/") > 1
    return folder_name(name) if is_path else name


def folder_name(path: str) -> str:
    """Return the last part of a path of any system; for a student in the folder of a run, the name of the run."""
    return short_model_name(path.replace("\\", "/"))


def name_in_picture(name: str) -> str:
    """Return a model's name in a form that is short enough for a picture: the last two parts of a path or Hub name."""
    parts = name.removeprefix("package:").replace("\\", "/").rstrip("/").split("/")
    return "/".join(part for part in parts[-2:] if part not in ("", ".", ".."))


def name_roles(names: Sequence[str]) -> list[str]:
    """Return the labels of one model, or of a student and a teacher."""
    if len(names) == 1:
        return [name_in_picture(names[0])]
    student, teacher = names
    return [f"student: {name_in_picture(student)}", f"teacher: {name_in_picture(teacher)}"]
