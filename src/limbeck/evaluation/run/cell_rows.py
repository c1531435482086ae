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

_OPTIONAL_FIELDS = ("weights", "thresholds", "intervals", "only_answer", "chance", "queries")
"""Fields of a result that rows have only where they are known: rows of earlier versions lack them too."""


@dataclass(frozen=True)
class Provenance:
    """The software and hardware that cells run with.

    Attributes:
        versions: Versions of the packages that decide results, by name.
        commit: Git commit of limbeck's source; None where it is not in a repository.
        device: Name of the device.
    """

    versions: dict[str, Any]
    commit: str | None
    device: str

    @classmethod
    def here(cls) -> "Provenance":
        """Return the provenance of results of this process."""
        return cls(versions=machine.versions(), commit=machine.git_commit(), device=machine.hardware()["device"])


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
    """Return the row of a cell for `results.jsonl`, and write the cell's predictions to a file of their own.

    Args:
        training: The training that the cell was run with.
        cell_id: Identity of the cell.
        outcome: The result of the cell, or the reason for which it has none.
        task: The task of the cell.
        model: The model of the cell.
        preset: Name of the protocol.
        provenance: The software and hardware that the cell was run with.
        folder: The folder of the evaluation.

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
        # The row has the name of the file in the place of the predictions.
        values["predictions"] = save_predictions(folder, cell_id, outcome.predictions)
        values["notes"] = list(task.notes)
    positive = task.planned.task.positive
    if positive is not None:
        values["positive"] = positive
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
    """Return the fields of a result by name; rows call them the same."""
    values = dict(vars(result))
    for name in _OPTIONAL_FIELDS:
        if values[name] is None:
            del values[name]
    return values
