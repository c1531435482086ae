"""Rows of `results.jsonl`: the result of a cell, with what it depends on and where it ran."""

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
from limbeck.evaluation.run.trainings import Failure, SharedTraining

_OPTIONAL_FIELDS = ("weights", "thresholds", "intervals", "only_answer")
"""Fields of a result that rows have only where they are known: rows of earlier versions lack them too."""


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
    outcome: CellResult | Failure,
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
        outcome: Its result, or the reason for which it has none.
        task: Its task.
        model: Its model.
        preset: Name of the protocol.
        provenance: Where it ran.
        folder: Of the evaluation.

    Raises:
        OutputError: if predictions cannot be written.
    """
    cell = training.cells[cell_id].cell
    if isinstance(outcome, Failure):
        status = FAILED
        values: dict[str, Any] = {"error": outcome.problem}
    else:
        status = FINISHED
        values = _values_of(outcome)
        values["predictions"] = save_predictions(folder, cell_id, outcome.predictions)
        values["notes"] = list(task.notes)
    if isinstance(cell.point, TrainingPoint):
        values["training_arguments"] = changed_keywords(cell.point, cell.seed)
    return EvaluationCell(
        id=cell_id,
        training=training.id,
        status=status,
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
    for name in _OPTIONAL_FIELDS:
        if values[name] is None:
            del values[name]
    return values
