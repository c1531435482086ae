"""Rows of `results.jsonl`: what a cell gave, with what it depends on and where it ran."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.core import machine, records
from limbeck.core.studies import FAILED, FINISHED, EvaluationCell
from limbeck.evaluation.evaluators.evaluator import CellResult
from limbeck.evaluation.evaluators.fine_tuning import changed_keywords
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.points import TrainingPoint, settings_of
from limbeck.evaluation.results.predictions import save_predictions
from limbeck.evaluation.run.pending import PendingTask
from limbeck.evaluation.run.trainings import Failure, Outcome, SharedTraining

_ADDED = ("weights", "thresholds", "intervals", "only_answer")
"""Fields of a result that came after a release: rows without them are as they were."""


@dataclass(frozen=True)
class Provenance:
    """Where cells run.

    Attributes:
        versions: Of the packages.
        commit: Of limbeck's source.
        device: The device.
    """

    versions: dict[str, Any]
    commit: str | None
    device: str

    @classmethod
    def here(cls) -> "Provenance":
        """Return that of this process."""
        return cls(machine.versions(), machine.git_commit(), machine.hardware()["device"])


def row_of(
    training: SharedTraining,
    cell_id: str,
    outcome: Outcome,
    *,
    task: PendingTask,
    model: PlannedModel,
    preset: str,
    provenance: Provenance,
    folder: Path,
) -> EvaluationCell:
    """Return the row of a cell, and write its predictions.

    Args:
        training: That it was run with.
        cell_id: Its identity.
        outcome: What it gave.
        task: Its task.
        model: Its model.
        preset: Name of the protocol.
        provenance: Where it ran.
        folder: Of the evaluation.

    Raises:
        OutputError: if predictions cannot be written.
    """
    cell = training.cells[cell_id].cell
    values: dict[str, Any] = {}
    if isinstance(outcome, Failure):
        values["error"] = outcome.problem
    else:
        values = _values_of(outcome)
        values["predictions"] = save_predictions(folder, cell_id, outcome.predictions)
        values["notes"] = list(task.notes)
    if isinstance(cell.point, TrainingPoint):
        values["training_arguments"] = changed_keywords(cell.point, cell.seed)
    return EvaluationCell(
        id=cell_id,
        training=training.id,
        status=FAILED if isinstance(outcome, Failure) else FINISHED,
        model=cell.model,
        model_fingerprint=model.fingerprint,
        task=task.planned.task.name,
        data_fingerprint=task.planned.data,
        preset=preset,
        settings=settings_of(cell.point),
        seed=cell.seed,
        select=task.select,
        **values,
        versions=provenance.versions,
        commit=provenance.commit,
        device=provenance.device,
        created=records.timestamp(),
    )


def _values_of(result: CellResult) -> dict[str, Any]:
    """Return the fields of a result as a row has them."""
    values = dict(vars(result))
    for name in _ADDED:
        if values[name] is None:
            del values[name]
    return values
