"""Weights of cells that are kept: whose they are, in which folder, known by their hash, and how much room they need."""

import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from limbeck.core import files, folders, permissions
from limbeck.core.paths import FINE_TUNED, KEPT_WEIGHTS
from limbeck.core.studies import FINISHED, EvaluationCell
from limbeck.errors import LimbeckError, OutputError
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.planner import PlannedTask
from limbeck.evaluation.results.choices import Cells, Choices, best_run, choose, points_of
from limbeck.models import tokenizers, weight_files
from limbeck.models.fingerprint import model_fingerprint
from limbeck.models.quiet import quiet

_GIGABYTE = 1e9


def save_weights(folder: Path, model: PreTrainedModel, tokenizer: Any) -> str:
    """Write a fine-tuned model as an ordinary model folder, whole or not at all.

    Args:
        folder: The folder; one that is there is replaced.
        model: The model.
        tokenizer: Its tokenizer; left as it is.

    Returns:
        The hash of its weights, configuration and tokenizer, see `limbeck.models.fingerprint.model_fingerprint`.

    Raises:
        OutputError: if it cannot be written.
    """
    with folders.writing(folder), files.atomic_folder(folder) as partial:
        with quiet():
            model.save_pretrained(str(partial))
            tokenizers.save_tokenizer(partial, tokenizer, model)
        permissions.give_ordinary_mode(partial.glob("*.safetensors"))
        for path in partial.iterdir():
            files.sync(path)
        return model_fingerprint(str(partial))


def find_weights(folder: Path, cell: EvaluationCell) -> Path | None:
    """Return the model folder of a cell's kept weights; None where they are gone, or not as they were saved.

    Args:
        folder: Of the evaluation.
        cell: A finished cell of it.
    """
    for place in (folder / FINE_TUNED, folder / KEPT_WEIGHTS / cell.id):
        if _has_weights_of(place, cell):
            return place
    return None


def _has_weights_of(place: Path, cell: EvaluationCell) -> bool:
    """Whether a folder holds the weights of a cell as they were saved."""
    if cell.weights is None or not place.is_dir():
        return False
    try:
        return model_fingerprint(str(place)) == cell.weights
    except (LimbeckError, OSError):
        return False


def trained_ids(tasks: Sequence[PlannedTask]) -> set[str]:
    """Return the identities of the planned cells that have weights, which only a training gives them."""
    identities: set[str] = set()
    for task in tasks:
        identities.update(planned.id for planned in task.cells if planned.cell.is_trained)
    return identities


def wanted_cells(keep: str | None, tasks: Sequence[PlannedTask], cells: Cells, choices: Choices) -> set[str]:
    """Return the identities of the finished cells whose weights are to be there at the end.

    Args:
        keep: `"all"` of every cell that is trained; `"best"` of each model and task the best seed of the chosen grid
            point; None of none.
        tasks: The plan.
        cells: The latest row of every planned cell.
        choices: The chosen grid points.
    """
    if keep is None:
        return set()
    trained = trained_ids(tasks)
    if keep == "best":
        return {choice.best.id for choice in choices.values()} & trained
    return {identity for identity in trained if identity in cells and cells[identity].status == FINISHED}


def candidates(finished: Sequence[EvaluationCell], task: PlannedTask) -> set[str]:
    """Return the cells of one model and task that may still turn out to be the best one.

    Those are the best run of the point that is chosen so far, and of every point whose runs are not all finished. Cells
    are run point by point, so that they are as many as there are workers, and two more.

    Args:
        finished: The finished ones, in the order of the plan.
        task: Decides how the best is chosen, and how many runs a point has.
    """
    if not finished:
        return set()
    identities = {choose(finished, task.task, task.settings, task.runs).best.id}
    if task.settings.pick == "best":
        return identities
    for point in points_of(finished):
        if len(point) < task.runs:
            identities.add(best_run(point, task.metric).id)
    return identities


def remove_weights(folder: Path, identities: Collection[str]) -> None:
    """Remove the kept weights of planned cells, as far as they are there."""
    for identity in identities:
        files.remove(folder / KEPT_WEIGHTS / identity)


def place_model(folder: Path, cell: EvaluationCell, finish: Callable[[Path], object]) -> Path:
    """Move the kept weights of a cell to the evaluation's one model, whole or not at all.

    Args:
        folder: Of the evaluation.
        cell: Its weights are there, see `find_weights`.
        finish: Writes further files, such as a card, into the model's folder before it is in its place; called too
            where the model is in its place already.

    Raises:
        OutputError: if it cannot be written.
    """
    weights = find_weights(folder, cell)
    if weights is None:
        raise OutputError(f"The weights of '{cell.id}' are not in '{folder}'; run the same command again.")
    finish(weights)
    place = folder / FINE_TUNED
    if weights == place:
        return place

    with folders.writing(folder):
        # An older model is set aside until the new one is in its place.
        old = place.with_name(f"{place.name}.replaced")
        files.remove(old)
        if place.exists():
            place.rename(old)
        weights.rename(place)
        files.remove(old)
        folder_of_cells = folder / KEPT_WEIGHTS
        if not any(folder_of_cells.iterdir()):
            folder_of_cells.rmdir()
    return place


def check_room(
    keep: str,
    folder: Path,
    models: Sequence[PlannedModel],
    tasks: Sequence[PlannedTask],
    finished: Collection[str],
    workers: int,
) -> None:
    """Refuse to keep more weights than the disk has room for, before hours of work.

    Args:
        keep: `"best"` or `"all"`.
        folder: Of the evaluation.
        models: All models.
        tasks: The plan.
        finished: Identities of the cells that are not run.
        workers: Trainings at once, of which each has a candidate for the best.

    Raises:
        OutputError: with what is needed and what is there.
    """
    needed_bytes = 0
    for model in models:
        model_bytes = sum(file.stat().st_size for file in weight_files.fetch_weights(model.name, None))
        for task in tasks:
            trained = [planned.id for planned in task.cells_of(model.name) if planned.cell.is_trained]
            if keep == "best":
                unfinished = [identity for identity in trained if identity not in finished]
                # Beside a candidate of each worker stand the best so far, and the one that is just written.
                needed_bytes += model_bytes * min(len(unfinished), workers + 2)
            else:
                unsaved = [identity for identity in trained if not (folder / KEPT_WEIGHTS / identity).is_dir()]
                needed_bytes += model_bytes * len(unsaved)

    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes <= free_bytes:
        return
    message = (
        f"Keeping weights takes about {needed_bytes / _GIGABYTE:.1f} GB, and '{folder}' has "
        f"{free_bytes / _GIGABYTE:.1f} GB free; "
    )
    if keep == "all":
        message += "keep only the best (--keep-weights best), or "
    raise OutputError(message + "choose another --output.")
