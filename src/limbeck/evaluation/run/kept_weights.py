"""The weights of fine-tuned models that an evaluation keeps on disk: which ones, where, and how much room they need.

A *cell* is one model on one task, at one grid point (a combination of settings) and with one seed; each cell that is
trained has weights. `"all"` keeps the weights of every cell, `"best"` for each model and task only those of the best
seed of the grid point that is chosen in the end. Weights lie in a folder with the cell's identity as its name; the
cell's row in the results has their hash, so that weights that were changed later are not taken for the cell's.
"""

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
_BYTES_OF_NUMBER = 4
"""Of float32."""


def save_weights(folder: Path, model: PreTrainedModel, tokenizer: Any) -> str:
    """Write a fine-tuned model as an ordinary model folder, whole or not at all.

    Args:
        folder: The folder of the model; an existing one is replaced.
        model: The model.
        tokenizer: The tokenizer of the model.

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
        folder: The folder of the evaluation.
        cell: A finished cell of the evaluation.
    """
    # `place_model` moves the weights of one cell to the folder `FINE_TUNED`.
    for model_folder in (folder / FINE_TUNED, folder / KEPT_WEIGHTS / cell.id):
        if _has_weights_of(model_folder, cell):
            return model_folder
    return None


def _has_weights_of(model_folder: Path, cell: EvaluationCell) -> bool:
    """Whether a folder holds the weights of a cell as they were saved."""
    if cell.weights is None or not model_folder.is_dir():
        return False
    try:
        return model_fingerprint(str(model_folder)) == cell.weights
    except (LimbeckError, OSError):
        # The folder holds no model, or a damaged one.
        return False


def trained_ids(tasks: Sequence[PlannedTask]) -> set[str]:
    """Return the identities of the planned cells that have weights, which only a training gives them."""
    identities: set[str] = set()
    for task in tasks:
        identities.update(planned.id for planned in task.cells if planned.cell.is_trained)
    return identities


def wanted_cells(keep: str | None, tasks: Sequence[PlannedTask], cells: Cells, choices: Choices) -> set[str]:
    """Return the identities of the finished cells whose weights are to be kept at the end.

    Args:
        keep: `"all"`, `"best"` or None; see the top of this file.
        tasks: The tasks with their planned cells.
        cells: The latest row of every planned cell, by identity.
        choices: The chosen grid points.
    """
    if keep is None:
        return set()
    trained = trained_ids(tasks)
    if keep == "best":
        return {choice.best.id for choice in choices.values()} & trained
    return {identity for identity in trained if identity in cells and cells[identity].status == FINISHED}


def candidates(finished: Sequence[EvaluationCell], task: PlannedTask) -> set[str]:
    """Return the identities of the cells of one model and task that may still turn out to be the best.

    These are the best run of the grid point that is chosen so far, and the best run of every point that still lacks
    runs. Cells run point by point, so few points lack runs at a time: there are at most `workers + 2` candidates.

    Args:
        finished: The finished cells of the model on the task, in the order of the plan.
        task: The task, which decides how the best is chosen and how many runs a point has.
    """
    if not finished:
        return set()
    identities = {choose(finished, task.task, task.settings, task.runs).best.id}
    # With this setting the best single run is chosen, whatever the other runs of its point are like.
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
    """Move the kept weights of a cell to the folder of the evaluation's one model, whole or not at all.

    `limbeck finetune` is an evaluation with one model as its product, in the folder `FINE_TUNED`.

    Args:
        folder: The folder of the evaluation.
        cell: The cell, whose weights are kept; see `find_weights`.
        finish: Function of the model's folder that writes further files into it, such as a card. It is called before
            the folder is moved, and also where there is nothing to move.

    Returns:
        The folder of the model.

    Raises:
        OutputError: if it cannot be written.
    """
    weights = find_weights(folder, cell)
    if weights is None:
        raise OutputError(
            f"The weights of '{cell.id}' are not in '{folder}'; run the same command again, which makes them anew."
        )
    finish(weights)
    target = folder / FINE_TUNED
    if weights == target:
        # An earlier call has moved them.
        return target

    with folders.writing(folder):
        # An older model is set aside until the new one is in its place.
        replaced = target.with_name(f"{target.name}.replaced")
        files.remove(replaced)
        if target.exists():
            target.rename(replaced)
        weights.rename(target)
        files.remove(replaced)

        # An empty folder of cells is not left behind.
        folder_of_cells = folder / KEPT_WEIGHTS
        if not any(folder_of_cells.iterdir()):
            folder_of_cells.rmdir()
    return target


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
        folder: The folder of the evaluation.
        models: All models.
        tasks: The plan.
        finished: Identities of the finished cells, which are not run again.
        workers: Number of trainings that run at the same time.

    Raises:
        OutputError: with what is needed and what is there.
    """
    needed_bytes = 0
    for model in models:
        # Models are trained and saved in float32, also those that are stored in half precision.
        model_bytes = _BYTES_OF_NUMBER * weight_files.count_numbers(weight_files.fetch_weights(model.name, None))
        for task in tasks:
            trained = [planned.id for planned in task.cells_of(model.name) if planned.cell.is_trained]
            if keep == "best":
                unfinished = [identity for identity in trained if identity not in finished]
                # At most one candidate for each worker, the best so far, and the weights that are just being written.
                further_models = min(len(unfinished), workers + 2)
            else:
                unsaved = [identity for identity in trained if not (folder / KEPT_WEIGHTS / identity).is_dir()]
                further_models = len(unsaved)
            needed_bytes += model_bytes * further_models

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
