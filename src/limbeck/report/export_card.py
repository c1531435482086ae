"""The card of an export: that of the run that made the student, else the student's own with a section added."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from limbeck.core.files import record_damage
from limbeck.core.markdown import code_block
from limbeck.core.records import Export
from limbeck.errors import RecipeError
from limbeck.export.source import locate
from limbeck.models.locating import is_local, resolve_model
from limbeck.report.card_parts import HEAD_USAGE, ExportRecord, export_part, onnx_usage
from limbeck.report.model_card import (
    CARD,
    dump_front_matter,
    export_tags,
    find_record,
    is_in_float32,
    run_of,
    usage_fields,
    write_model_card,
)
from limbeck.report.task_scores import find_scores


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
    record = find_record(student) if student.is_dir() else None
    if evaluation is not None and record is None:
        raise RecipeError(f"--evaluation is for the card of a run's student, and '{name}' is in no run; leave it out.")
    scores = find_scores(student, evaluation) if record is not None else None

    def write(folder: Path, export: Mapping[str, Any]) -> None:
        if record is not None:
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


def card_without_run(located: str, record: ExportRecord) -> str:
    """Return the card of a model that no run on this machine made: its own one, where it has one, and what is new.

    Args:
        located: The model, as it was located.
        record: Of the export.
    """
    export, resolved = Export.read(record), resolve_model(located)
    own = _own_card(Path(resolved)) if is_local(resolved) else None
    if own is not None:
        fields, text = own
        if not is_in_float32(export):  # Its scores are those of the source.
            fields = {key: value for key, value in fields.items() if key not in ("model-index", "metrics")}
    else:
        fields = dict(usage_fields(pooled=bool(export.pooling), head=HEAD_USAGE.get(export.head or "")))
        if not is_local(resolved):
            quantised = {"base_model_relation": "quantized"} if export.dtype == "int8" else {}
            fields |= {"base_model": resolved, **quantised}
        text = f"# {export.source.replace('/', ' / ')}"
    fields["tags"] = list(dict.fromkeys([*(fields.get("tags") or []), *export_tags(export)])) or None
    front = dump_front_matter({key: value for key, value in fields.items() if value})
    parts = [f"{front}\n{text.strip()}", "## This export", export_part(export)]
    if export.file:
        note = "This folder holds the graph and no PyTorch weights. Replace `path/to/student` by it."
        parts += [note, code_block(onnx_usage(export), "python")]
    return "\n\n".join(parts) + "\n"


def _own_card(folder: Path) -> tuple[dict[str, Any], str] | None:
    try:
        card = ModelCard.load(folder / CARD, ignore_metadata_errors=True)
    except Exception:  # Missing, or anybody's text: the export is described all the same.
        return None
    return card.data.to_dict(), card.text
