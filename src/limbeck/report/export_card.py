"""The model card of an export.

If a run on this machine made the student, the card is made from the run's record. Otherwise it is the model's own card,
with a section on the export added.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from limbeck.core import records
from limbeck.core.escaping import code_block
from limbeck.core.exports import Export
from limbeck.core.files import atomic_text, writing
from limbeck.core.paths import MODEL_CARD, run_of_student
from limbeck.errors import RecipeError
from limbeck.models import locating
from limbeck.report.card import (
    export_tags,
    fields_without_results,
    front_matter,
    is_in_float32,
    new_heading,
    own_card_and_hub_name,
    usage_fields,
)
from limbeck.report.card_templates import onnx_usage, router_usage
from limbeck.report.export_text import ExportRecord, export_part
from limbeck.report.run_cards import find_record
from limbeck.report.student_card import write_model_card
from limbeck.report.task_scores import TaskScores, find_scores


def card_writer(name: str, evaluation: Path | None = None) -> Callable[[Path, Mapping[str, Any]], None]:
    """Return a function that writes the card of an export; it takes the export's folder and its record.

    What can be refused is refused here, before the export is made.

    Args:
        name: The student, as the user named it.
        evaluation: Folder of an evaluation with the student's scores; None looks for one in the run's folder.

    Raises:
        RecipeError: if `evaluation` has no scores of the student, or the student does not belong to a run.
    """
    located = locating.locate_model(name)
    student = Path(located).expanduser()
    run = find_record(student) if student.is_dir() else None
    if run is not None:
        return partial(_write_card_of_run, run, find_scores(student, evaluation))
    if evaluation is not None:
        raise RecipeError(
            f"--evaluation adds scores to the card of a run's student, but '{name}' does not belong to a run; "
            "leave --evaluation out."
        )
    return partial(_write_card_without_run, located)


def _write_card_of_run(run: records.Run, scores: TaskScores | None, folder: Path, export: Mapping[str, Any]) -> None:
    """Write the card of an export whose student a run made."""
    write_model_card(run, folder, scores=scores, export=export)


def _write_card_without_run(located: str, folder: Path, export: Mapping[str, Any]) -> None:
    """Write the card of an export of any other model."""
    path = folder / MODEL_CARD
    text = card_without_run(located, export)
    with writing(path):
        atomic_text(path, text)


def run_problem(name: str) -> str | None:
    """Return a warning if the record of the run that made a student is damaged; None if there is no such problem.

    Args:
        name: The student, as the user named it.
    """
    student = Path(locating.locate_model(name)).expanduser()
    if not student.is_dir():
        return None
    # `find_record`, which `card_writer` uses, gives None for a damaged record, as for a student that no run made. So
    # the record is looked for by the run's folder here.
    run_folder = run_of_student(student)
    if run_folder is None:
        return None
    damage = records.record_damage(run_folder)
    if damage is None:
        return None
    return f"{damage} The model card is made without it."


def card_without_run(located: str, record: ExportRecord) -> str:
    """Return the card of the export of a model that no run on this machine made.

    A section on the export is added to the model's own card, or to a new one: for a folder without a card, and for a
    model of the Hub, whose page the new card names.

    Args:
        located: Folder or name of the model, as `locate_model` returns it.
        record: The record of the export.
    """
    export = Export.read(record)
    own_card, hub_name = own_card_and_hub_name(located)
    if own_card is not None:
        text = own_card.text
        fields = _fields_of_own_card(own_card, export)
    else:
        text = new_heading(export.source)
        fields = _fields_of_new_card(hub_name, export)

    tags = [*(fields.get("tags") or []), *export_tags(export)]
    fields["tags"] = list(dict.fromkeys(tags))
    parts = [f"{front_matter(fields)}\n{text.strip()}", "## This export", export_part(export)]
    if export.file:
        note = "This folder holds the graph, but no PyTorch weights. Replace `path/to/student` with this folder."
        parts += [note, code_block(onnx_usage(export), "python")]
    # A router has a second model, which encodes documents.
    if export.documents:
        parts += ["## How to use it", router_usage(export)]
    return "\n\n".join(parts) + "\n"


def _fields_of_own_card(card: ModelCard, export: Export) -> dict[str, Any]:
    """Return the fields of a model's own card that are true of its export."""
    # The scores in the card are those of the model's own weights, which quantised ones do not reach.
    if not is_in_float32(export):
        return fields_without_results(card)
    fields: dict[str, Any] = card.data.to_dict()
    return fields


def _fields_of_new_card(hub_name: str | None, export: Export) -> dict[str, Any]:
    """Return the fields of a new card.

    Args:
        hub_name: The name on the Hub of the model that was exported; None for a folder.
        export: The export.
    """
    fields = usage_fields(pooled=bool(export.pooling), head=export.head or "")
    if hub_name is not None:
        fields["base_model"] = hub_name
        if export.dtype == "int8":
            fields["base_model_relation"] = "quantized"
    return fields
