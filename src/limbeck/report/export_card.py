"""The card of an export: that of the run that made the student, else the student's own with a section added."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from limbeck.core.files import record_damage
from limbeck.core.markdown import code_block
from limbeck.errors import RecipeError
from limbeck.export.source import locate
from limbeck.models.locating import is_local, resolve_model
from limbeck.report.card_parts import HEAD_USAGE, onnx_usage
from limbeck.report.model_card import (
    CARD,
    dump_front_matter,
    export_part,
    export_tags,
    find_record,
    is_in_float32,
    run_of,
    write_model_card,
)
from limbeck.report.task_scores import find_scores

_TASKS = {"token_classification": "token-classification"} | {
    head: usage.pipeline_tag for head, usage in HEAD_USAGE.items()
}


def card_writer(name: str, evaluation: Path | None = None) -> Callable[[Path, Mapping[str, Any]], None]:
    """Return what writes the card of an export.

    Args:
        name: The student, as the user named it.
        evaluation: Folder of an evaluation with the student's scores; None looks for one in the run's folder.

    Raises:
        RecipeError: if the evaluation that is named has no scores of the student.
    """
    located = locate(name)
    student = Path(located).expanduser()
    record = find_record(student) if student.is_dir() else {}
    if evaluation is not None and not record:
        raise RecipeError(f"--evaluation is for the card of a run's student, and '{name}' is in no run; leave it out.")
    scores = find_scores(student, evaluation) if record else None

    def write(folder: Path, export: Mapping[str, Any]) -> None:
        if record:
            write_model_card(record, folder, scores=scores, export=export)
        else:
            (folder / CARD).write_text(card_without_run(located, export), encoding="utf-8")

    return write


def run_problem(name: str) -> str | None:
    """Say in a line that the card cannot tell of the run that made a student, since its record is damaged.

    Args:
        name: The student, as the user named it.
    """
    student = Path(locate(name)).expanduser()
    run = run_of(student) if student.is_dir() else None
    damage = record_damage(run) if run is not None else None
    return None if damage is None else f"{damage} The model card is made without it."


def card_without_run(located: str, export: Mapping[str, Any]) -> str:
    """Return the card of a model that no run on this machine made: its own one, where it has one, and what is new.

    Args:
        located: The model, as it was located.
        export: The record of the export.
    """
    resolved = resolve_model(located)
    own = _own_card(Path(resolved)) if is_local(resolved) else None
    if own is not None:
        fields, text = own
        if not is_in_float32(export):  # Its scores are those of the source.
            fields = {key: value for key, value in fields.items() if key not in ("model-index", "metrics")}
    else:
        fields = {
            "library_name": "sentence-transformers" if export["pooling"] else "transformers",
            "pipeline_tag": _task(export),
        }
        if not is_local(resolved):
            quantised = {"base_model_relation": "quantized"} if export["dtype"] == "int8" else {}
            fields |= {"base_model": resolved, **quantised}
        text = f"# {str(export['source']).replace('/', ' / ')}"
    fields["tags"] = list(dict.fromkeys([*(fields.get("tags") or []), *export_tags(export)])) or None
    parts = [text.strip(), "## This export", export_part(export)]
    if export.get("file"):
        parts += [
            "This folder holds the graph and no PyTorch weights. Replace `path/to/student` by it.",
            code_block(onnx_usage(export), "python"),
        ]
    return dump_front_matter({key: value for key, value in fields.items() if value}) + "\n" + "\n\n".join(parts) + "\n"


def _task(export: Mapping[str, Any]) -> str:
    plain = "sentence-similarity" if export["pooling"] else "feature-extraction"
    return _TASKS.get(str(export["head"]), plain)


def _own_card(folder: Path) -> tuple[dict[str, Any], str] | None:
    try:
        card = ModelCard.load(folder / CARD, ignore_metadata_errors=True)
    except Exception:  # Missing, or anybody's text: the export is described all the same.
        return None
    return card.data.to_dict(), card.text
