"""Model cards: their front matter on the Hub's own types, and their text out of templates.

Everything in a card comes from records, so nothing in it is trusted: text is escaped by the filters of its template,
and front matter is written by a YAML library, on one line a value.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData

from limbeck.core.escaping import one_line, printable_values
from limbeck.core.exports import Export
from limbeck.core.kinds import kind_of, own_kind_like
from limbeck.core.yaml import read_document
from limbeck.evaluation.tasks.registry import DEFINITIONS
from limbeck.export.formats import FORMATS
from limbeck.report.card_templates import card_templates

_HEADS_FILE = Path(__file__).with_name("templates") / "heads.yaml"
HEADS: Mapping[str, Mapping[str, str]] = read_document(_HEADS_FILE, f"'{_HEADS_FILE}'", "install limbeck again.")
"""By the head's kind, as records have it: the student in a word or two (`noun`), the Hub's name of the task
(`pipeline_tag`), and the class that loads it (`model_class`); the code that uses each is in the templates."""
_HUB_METRICS = {
    "micro_f1": "f1",
    "macro_f1": "f1",
    "f1_answer": "f1",
    "f1_entity": "f1",
    "precision_entity": "precision",
    "recall_entity": "recall",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}


def card_text(data: ModelCardData, template: str, card: Any) -> str:
    """Return the text of a card.

    Args:
        data: The front matter.
        template: One of those that extend `card.md.j2`.
        card: The facts that the template reads.
    """
    body = card_templates().get_template(template).render(card=card)
    # Parts without content leave blank lines behind.
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    return f"{front_matter(data.to_dict())}\n{body}\n"


def front_matter(fields: Mapping[str, Any]) -> str:
    """Return fields as the YAML block at the head of a card, `---` lines included; empty ones are left out."""
    known = {name: value for name, value in fields.items() if value}
    # A width without end keeps every value on one line, so that none can look like the closing `---`.
    text = yaml.safe_dump(printable_values(known), sort_keys=False, allow_unicode=True, width=float("inf"))
    return f"---\n{text}---\n"


def usage_fields(*, pooled: bool, head: str) -> dict[str, Any]:
    """Return the Hub's names of the library and the task of a model.

    Args:
        pooled: Whether it makes sentence vectors.
        head: The kind of its head; empty for none.
    """
    facts_of_head = HEADS.get(own_kind_like(head))
    if facts_of_head is not None:
        return {"library_name": "transformers", "pipeline_tag": facts_of_head["pipeline_tag"]}
    if pooled:
        return {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
    return {"library_name": "transformers", "pipeline_tag": "feature-extraction"}


def base_model_fields(hub_name: str | None) -> dict[str, Any]:
    """Return the fields that name the model that this one was made from."""
    if not hub_name:
        return {}
    # The Hub has no word for a distilled model; of those it has, this is the one for weights that were trained on.
    return {"base_model": hub_name, "base_model_relation": "finetune"}


def result_fields(results: list[EvalResult], name: str) -> dict[str, Any]:
    """Return the fields of measured results: the names of their metrics, and the Hub's `model-index`."""
    if not results:
        return {}
    metrics = list(dict.fromkeys(result.metric_type for result in results))
    return {"metrics": metrics, "eval_results": results, "model_name": one_line(name)}


def export_tags(export: Export | None) -> list[str]:
    """Return the tags of an export's format; none without an export, or with a format that is not installed."""
    if export is None or export.format not in FORMATS:
        return []
    return list(FORMATS[export.format].tags)


def is_in_float32(export: Export | None) -> bool:
    """Return whether an export's weights are those that were measured; a student itself has them."""
    return export is None or export.dtype == "float32"


def hub_metric(metric: str) -> str:
    """Return the Hub's name of a metric."""
    return _HUB_METRICS.get(metric, metric)


def reads_pairs(task: Mapping[str, Any]) -> bool | None:
    """Return whether the rows of a task are pairs of texts; None where nothing tells.

    Args:
        task: As a recipe describes it, or its `name` alone.
    """
    name = task.get("name")
    if name is not None and name in DEFINITIONS:
        return DEFINITIONS[name].columns.pair is not None
    # A task file of the user's own is not described in the recipe.
    if name is not None or "kind" not in task:
        return None
    if kind_of(task["kind"]).has_queries:
        return True
    return task.get("pair_column") is not None
