"""Model cards: their front matter by the Hub's own types, and their text by templates.

A card is the `README.md` of a model on the Hub. Its *front matter* is a block of YAML at the top, which the Hub reads.
The content of a card comes from records, which anybody may have written, so that none of it is trusted: the filters of
the template escape text, and a YAML library writes the front matter, each value on one line.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from limbeck.core.escaping import escape_markdown, one_line, printable_values
from limbeck.core.exports import Export
from limbeck.core.kinds import kind_of, own_kind_like
from limbeck.core.paths import MODEL_CARD
from limbeck.core.yaml import read_document
from limbeck.errors import LimbeckError
from limbeck.evaluation.tasks.registry import find_task
from limbeck.export.formats import FORMATS
from limbeck.models import locating
from limbeck.report.card_templates import card_templates

_HEADS_FILE = Path(__file__).with_name("templates") / "heads.yaml"
HEADS: Mapping[str, Mapping[str, str]] = read_document(_HEADS_FILE, f"'{_HEADS_FILE}'", "install limbeck again.")
"""Facts about each kind of head, by its name in records: what to call a model with it (`noun`), the Hub's name of its
task (`pipeline_tag`), and the class of transformers that loads it (`model_class`)."""
_HUB_METRICS = {
    "micro_f1": "f1",
    "macro_f1": "f1",
    "weighted_f1": "f1",
    "f1_answer": "f1",
    "f1_entity": "f1",
    "precision_entity": "precision",
    "recall_entity": "recall",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
"""The Hub's names of our metrics, where they differ."""


def card_text(data: ModelCardData, template: str, card: Any) -> str:
    """Return the text of a card.

    Args:
        data: The front matter.
        template: File name of the template, one that extends `card.md.j2`.
        card: The object whose attributes the template reads, such as a `StudentCard`.
    """
    body = card_templates().get_template(template).render(card=card)
    # Parts of the template without content leave blank lines behind: more than one in a row becomes one.
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    return f"{front_matter(data.to_dict())}\n{body}\n"


def own_card_and_hub_name(located: str) -> tuple[ModelCard | None, str | None]:
    """Return the card of a model in a folder, and the name of a model on the Hub; each is None where there is none.

    Args:
        located: Folder or name of the model, as `locate_model` returns it.
    """
    # A resolved model is a folder, as `package:NAME` is then too, or has a name on the Hub.
    resolved = locating.resolve_model(located)
    if locating.is_local(resolved):
        return _read_card(Path(resolved)), None
    return None, resolved


def fields_without_results(card: ModelCard) -> dict[str, Any]:
    """Return the front matter of a model's own card without its scores, for a model that was made from it."""
    fields: dict[str, Any] = card.data.to_dict()
    fields.pop("model-index", None)
    fields.pop("metrics", None)
    return fields


def _read_card(folder: Path) -> ModelCard | None:
    """Read the card of a model; None where it is missing or cannot be read."""
    try:
        return ModelCard.load(folder / MODEL_CARD, ignore_metadata_errors=True)
    except Exception:  # Anybody may have written the card; if it cannot be read, a new one is made.
        return None


def new_heading(name: str) -> str:
    """Return the heading of the card of a model that has none of its own: `# owner / model` for `owner/model`."""
    return f"# {escape_markdown(name.replace('/', ' / '))}"


def front_matter(fields: Mapping[str, Any]) -> str:
    """Return the YAML block at the head of a card, between two lines `---`; fields without a value are left out."""
    known = {name: value for name, value in fields.items() if value}
    # A width without end keeps every value on one line, so that none can look like the closing `---`.
    text = yaml.safe_dump(printable_values(known), sort_keys=False, allow_unicode=True, width=float("inf"))
    return f"---\n{text}---\n"


def usage_fields(*, pooled: bool, head: str) -> dict[str, Any]:
    """Return the Hub's names of the library and the task of a model.

    Args:
        pooled: Whether the model makes sentence vectors.
        head: The kind of the model's head; empty for a model without one.
    """
    # A kind of task from a plugin is treated as the built-in kind that it is like.
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
    # The Hub has no relation for distillation. "finetune" is that of a model that came from another by training.
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
    """Return whether the weights are those that were measured: those of a student, or of an export in float32.

    Args:
        export: The record of the export; None for the student itself.
    """
    return export is None or export.dtype == "float32"


def hub_metric(metric: str) -> str:
    """Return the Hub's name of a metric."""
    return _HUB_METRICS.get(metric, metric)


def reads_pairs(task: Mapping[str, Any]) -> bool | None:
    """Return whether the rows of a task are pairs of texts; None where it cannot be known.

    Args:
        task: The task as a recipe describes it: by the `name` of a built-in task or of a file, or by its `kind` and
            the columns of its rows.
    """
    name = task.get("name")
    if name is not None:
        try:
            definition = find_task(name)
        except (LimbeckError, KeyError):
            # The file of the user's own task has moved or changed, or another version of limbeck has the task.
            return None
        kind = definition.type
        pair_column = definition.columns.pair
    elif "kind" in task:
        kind = task["kind"]
        pair_column = task.get("pair_column")
    else:
        return None
    # A query with a document is a pair too.
    return kind_of(kind).has_queries or pair_column is not None
