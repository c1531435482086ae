"""Names of runs, models and metrics in tables, cards and pages."""

from collections.abc import Sequence
from pathlib import Path

from limbeck.core.paths import short_model_name

_DEFAULT_NAMES = ("", "run", "comparison", "mapping", "architecture", "teacher-layer")
"""Names that results have if the user gives none; they tell nothing, so the name of the folder is shown instead."""
_METRICS = {
    "f1": "F1",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "f1_answer": "F1",
    "f1_entity": "entity F1",
    "precision_entity": "entity precision",
    "recall_entity": "entity recall",
    "ndcg_at_10": "nDCG@10",
    "mrr_at_10": "MRR@10",
    "recall_at_1": "recall@1",
    "recall_at_10": "recall@10",
    "recall_at_100": "recall@100",
    "exact_span": "exact answer windows",
}


def metric_name(metric: str) -> str:
    """Return a metric as tables head it."""
    return _METRICS.get(metric, metric.replace("_", " "))


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
    """Return the last part of a path to a folder; other names, such as those on the Hub, are returned as they are."""
    # A name on the Hub has one slash, as in `google/bert`, and no leading dot.
    is_path = name.startswith(("/", ".", "~")) or name.count("/") > 1
    return short_model_name(name) if is_path else name


def name_in_picture(name: str) -> str:
    """Return a model's name in a form that is short enough for a picture: the last two parts of a path or Hub name."""
    parts = name.removeprefix("package:").rstrip("/").split("/")
    return "/".join(part for part in parts[-2:] if part not in ("", ".", ".."))


def name_roles(names: Sequence[str]) -> list[str]:
    """Return the labels of one model, or of a student and a teacher."""
    if len(names) == 1:
        return [name_in_picture(names[0])]
    student, teacher = names
    return [f"student: {name_in_picture(student)}", f"teacher: {name_in_picture(teacher)}"]
