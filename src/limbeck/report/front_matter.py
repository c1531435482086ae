"""The Hub's front matter: the YAML block at the head of a model card.

Everything in it comes from a run's record, so nothing in it is trusted: it is written by a YAML library, on
one line a value, and what is not known is left out rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from limbeck.report.head_usage import HeadUsage
from limbeck.report.task_scores import TaskScores
from limbeck.report.teacher_card import inherited_fields, recorded_hub_name

_HUB_TASKS = {
    "classification": "text-classification",
    "regression": "text-classification",
    "question_answering": "question-answering",
    "similarity": "sentence-similarity",
}
_HUB_CORPUS = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:[:@#].*)?")


def front_matter(
    record: Mapping[str, Any],
    *,
    pooled: bool,
    head: HeadUsage | None = None,
    scores: TaskScores | None = None,
    export: Mapping[str, Any] | None = None,
) -> str:
    """Return the front matter of a student's card, `---` lines included.

    Args:
        record: A run's record; see `limbeck.report.record_fields.RunFields`.
        pooled: Whether the folder also loads in sentence-transformers.
        head: The head of the student, if it has one.
        scores: The student's scores on tasks, if it was evaluated.
        export: The record of the export, for the card of one.
    """
    fields: dict[str, Any] = {}
    inherited = {key: one_line(value) for key, value in inherited_fields(record).items()}
    for key in ("language", "license", "license_name", "license_link"):
        if inherited.get(key):
            fields[key] = inherited[key]
    fields["library_name"] = "sentence-transformers" if pooled and head is None else "transformers"
    plain = "sentence-similarity" if pooled else "feature-extraction"
    fields["pipeline_tag"] = plain if head is None else head.pipeline_tag
    if base := recorded_hub_name(record):
        # The Hub has no word for a distilled model; of those it has, this is the one for weights that were trained on.
        fields |= {"base_model": base, "base_model_relation": "finetune"}
    if datasets := hub_datasets(record):
        fields["datasets"] = datasets
    methods = [one_line(stage.get("method")) for stage in _mappings(record.get("stages"))]
    fields["tags"] = list(
        dict.fromkeys(["distillation", "limbeck", *(name for name in methods if name), *export_tags(export)])
    )
    # What was measured is the float32 student: of other weights it would be a claim that nobody checked.
    measured = is_in_float32(export)
    index = _model_index(record, fields["pipeline_tag"], scores) if measured else []
    if index:
        types = [metric["type"] for result in index[0]["results"] for metric in result["metrics"]]
        fields |= {"metrics": list(dict.fromkeys(types)), "model-index": index}
    return dump_front_matter(fields)


def export_tags(export: Mapping[str, Any] | None) -> list[str]:
    """Return the tags of an export's format."""
    if export is None or not export.get("file"):
        return []
    return ["onnx", "int8"] if export["dtype"] == "int8" else ["onnx"]


def is_in_float32(export: Mapping[str, Any] | None) -> bool:
    """Return whether an export's weights are those that were measured; a student itself has them."""
    return export is None or export.get("dtype") == "float32"


def dump_front_matter(fields: Mapping[str, Any]) -> str:
    """Return fields as the YAML block at the head of a card."""
    # A width without end keeps every value on one line, so that none can look like the closing `---`.
    dumped = yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=float("inf"))
    return f"---\n{dumped}---\n"


def hub_datasets(record: Mapping[str, Any]) -> list[str]:
    """Return the Hub data sets among the corpus sources (`hub:owner/name…`), without their configuration."""
    corpus = record.get("corpus")
    sources = corpus.get("sources") if isinstance(corpus, Mapping) else None
    found = [_HUB_CORPUS.fullmatch(str(source)) for source in sources or () if isinstance(source, str)]
    return list(dict.fromkeys(match[1] for match in found if match is not None))


def one_line(value: Any) -> str:
    """Return any value as one printable line without runs of space; empty for None."""
    if value is None:
        return ""
    text = "".join(character if character.isprintable() else " " for character in str(value))
    return " ".join(text.split())


def _model_index(record: Mapping[str, Any], task: str, scores: TaskScores | None) -> list[dict[str, Any]]:
    """Return the Hub's `model-index` with the figures that were measured, all as shares; empty without any."""
    results = [*_held_out_results(record, task), *(_task_results(scores) if scores is not None else [])]
    return [{"name": one_line(record.get("name")) or "student", "results": results}] if results else []


def _held_out_results(record: Mapping[str, Any], task: str) -> list[dict[str, Any]]:
    evaluation = record.get("evaluation")
    if not isinstance(evaluation, Mapping):
        return []
    agreement = evaluation.get("agreement") or {}
    retrieval = (evaluation.get("student") or {}).get("retrieval") or {}
    task_scores = evaluation.get("task") or {}
    metrics = [
        _metric("spearmanr", "Spearman agreement with the teacher", agreement.get("spearman")),
        _metric("mrr_at_10", "MRR@10 of finding a text's body by its summary", retrieval.get("mrr_at_10")),
        _metric("recall_at_1", "Recall@1 of finding a text's body by its summary", retrieval.get("recall_at_1")),
        _metric(str(task_scores.get("metric")), "Score on held-out rows", task_scores.get("student")),
    ]
    known = [metric for metric in metrics if metric is not None]
    dataset = {"name": "text held out from training", "type": "held-out"}
    return [{"task": {"type": task}, "dataset": dataset, "metrics": known}] if known else []


def _task_results(scores: TaskScores) -> list[dict[str, Any]]:
    results = []
    for row in scores.rows:
        how = "cosine of sentence vectors" if row.kind == "similarity" else f"fine-tuned, preset {scores.preset}"
        metric = _metric(row.hub_metric, f"{row.metric} ({how})", row.value)
        if metric is not None:
            dataset = {key: one_line(value) for key, value in row.dataset.items()}
            results.append({"task": {"type": _HUB_TASKS[row.kind]}, "dataset": dataset, "metrics": [metric]})
    return results


def _metric(kind: str, name: str, value: Any) -> dict[str, Any] | None:
    """Return one metric of the model index; None where it has no number."""
    if not isinstance(value, (int, float)) or value != value:
        return None
    return {"type": kind, "name": name, "value": round(float(value), 4)}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings in a sequence; empty for anything else."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [item for item in value if isinstance(item, Mapping)] if is_list else []
