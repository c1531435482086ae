"""Students of a run's checkpoints: each is made in a folder of its own, which is the run, ended early at that step.

A stage writes *checkpoints* as it trains, in the run's folder. Here a new folder gets the run up to a checkpoint, is
resumed from it, and ends at once, which writes the student. The run itself is only read. Its files are linked into the
folder, or copied where the file system has no links.
"""

import hashlib
import os
import re
import shutil
from pathlib import Path

from rich.console import Console

from limbeck.api.finishing import is_finished
from limbeck.core import records
from limbeck.core.files import remove
from limbeck.core.paths import MANIFEST, RECIPE, RUN_RECORD, STAGE_RECORD, STAGES, STUDENT
from limbeck.errors import OutputError
from limbeck.training.run_checkpoints import RunCheckpoint, checkpoints_of

_NAME = re.compile(r"checkpoint-\d+")
_FIELDS_OF_THE_END = ("evaluation", "untrained", "ended_early", "problem", "stages")
"""Fields of a run's record that describe its end, and not its student at a checkpoint."""


def find_checkpoint(name: object) -> RunCheckpoint | None:
    """Return the checkpoint that a path names; None for anything else.

    Args:
        name: Such as `runs/mine/stages/1-minilmv2/checkpoint-500`, or `runs/mine/checkpoint-500`.

    Raises:
        OutputError: for a step of which the run has no checkpoint, or which several of its stages have.
    """
    if not isinstance(name, str | Path):
        return None
    folder = Path(name).expanduser()
    if _NAME.fullmatch(folder.name) is None:
        return None
    # A path is short, `RUN/checkpoint-500`, or that of the checkpoint's folder, `RUN/stages/1-NAME/checkpoint-500`. A
    # short one may mean checkpoints of several stages.
    place = folder.absolute()
    run_of_short_path = place.parent
    run_of_full_path = place.parent.parent.parent
    if (run_of_short_path / RUN_RECORD).is_file():
        all_checkpoints = checkpoints_of(run_of_short_path)
        checkpoints = [checkpoint for checkpoint in all_checkpoints if checkpoint.name == place.name]
    elif (run_of_full_path / RUN_RECORD).is_file():
        all_checkpoints = checkpoints_of(run_of_full_path)
        checkpoints = [checkpoint for checkpoint in all_checkpoints if checkpoint.folder == place]
    else:
        return None
    if not all_checkpoints:
        raise OutputError(f"The run has no checkpoint '{folder}', and no other one; give the run for its student.")
    if not checkpoints:
        raise OutputError(f"The run has no checkpoint '{folder}'; choose one from the run's folder '{STAGES}'.")
    if len(checkpoints) > 1:
        places = " or ".join(str(checkpoint.folder) for checkpoint in checkpoints)
        raise OutputError(f"'{folder}' may mean a checkpoint of several stages; give the full path of one: {places}.")
    return checkpoints[0]


def checkpoints_of_student(run: Path) -> list[RunCheckpoint]:
    """List the checkpoints of a run's student, in their order; those of stages with another student are left out.

    Raises:
        OutputError: for a folder without a run, and a run without such checkpoints.
    """
    if not (run / RUN_RECORD).is_file():
        raise OutputError(f"'{run}' holds no run; give the folder of a run that keeps checkpoints.")
    checkpoints = [checkpoint for checkpoint in checkpoints_of(run) if not _has_own_student(checkpoint)]
    if not checkpoints:
        raise OutputError(
            f"The run in '{run}' has no checkpoints of its student; set training.save_total_limit: null in the "
            "recipe's stages and run again: the run then keeps all checkpoints."
        )
    return checkpoints


def folder_name(checkpoint: RunCheckpoint) -> str:
    """Return a name for the folder of a checkpoint's student, which another checkpoint of the same step does not have.

    Raises:
        OutputError: for a checkpoint that is gone or not whole.
    """
    try:
        manifest = (checkpoint.folder / MANIFEST).read_bytes()
    except OSError as error:
        raise _gone(checkpoint) from error
    # The manifest has hashes of the checkpoint's files. A run that is trained anew has others at the same step.
    digest = hashlib.blake2b(manifest, digest_size=4).hexdigest()
    return f"{checkpoint.run.resolve().name}-{checkpoint.stage_number}-{checkpoint.name}-{digest}"


def make_student(checkpoint: RunCheckpoint, folder: Path, console: Console | None) -> Path:
    """Make the student of a checkpoint, and return its folder; one that was made before is returned as it is.

    Args:
        checkpoint: The checkpoint.
        folder: The folder in which a copy of the run is ended at the checkpoint; anything else in it is removed.
        console: Where progress goes.

    Raises:
        LimbeckError: for a checkpoint that is damaged, or of a stage that trains another student than the run's; for a
            teacher or text that is not where the run found it.
    """
    from limbeck.api.distilling import distil_by
    from limbeck.api.requests.distil import DistilRequest
    from limbeck.report.run_cards import write_run_cards

    if is_finished(folder):
        return folder / STUDENT
    if _has_own_student(checkpoint):
        raise OutputError(
            f"'{checkpoint.folder}' is of stage '{checkpoint.stage}', whose student only teaches later stages and "
            "is not the run's student; choose a checkpoint of another stage."
        )
    # What an earlier call left that was killed.
    remove(folder)
    folder.mkdir(parents=True)
    try:
        _link_run(checkpoint, folder)
    except FileNotFoundError as error:
        raise _gone(checkpoint) from error
    # The resumed run loads the checkpoint, trains no further step, and writes the student.
    request = DistilRequest(output=folder, resume=True, console=console)
    run = distil_by(request, ends_early=True, measures=False).run
    if run.ended_early is not None:
        # Record and card say that the run itself went on.
        run.ended_early.of_checkpoint = True
        records.save(run, folder)
        write_run_cards(run, folder)
    # A recipe that keeps all checkpoints keeps this one too, whose link would hold its disk space.
    for linked in checkpoints_of(folder):
        remove(linked.folder)
    return folder / STUDENT


def _gone(checkpoint: RunCheckpoint) -> OutputError:
    """Return the error for a checkpoint that the run, which may be going on, has removed meanwhile."""
    return OutputError(f"The checkpoint '{checkpoint.folder}' is gone or not whole; choose a newer one.")


def _has_own_student(checkpoint: RunCheckpoint) -> bool:
    """Whether the stage of a checkpoint trains a student of its own."""
    stages = records.load(records.Run, checkpoint.run).recipe.stages
    index = checkpoint.stage_number - 1
    return index < len(stages) and stages[index].student is not None


def _link_run(checkpoint: RunCheckpoint, folder: Path) -> None:
    """Link what a run is made of up to a checkpoint: recipe, record, finished stages before it, and the checkpoint."""
    run = checkpoint.run
    shutil.copyfile(run / RECIPE, folder / RECIPE)
    # The record becomes that of a run which was interrupted at the checkpoint, so that it can be resumed.
    values = records.load(records.Run, run).to_dict()
    for name in _FIELDS_OF_THE_END:
        values.pop(name, None)
    values["status"] = "interrupted"
    records.save(records.Run.read(values), folder)
    # Stages before that of the checkpoint are finished. Its own has no record of its end yet, and no other checkpoint.
    # Later stages are left out.
    for stage_folder in (run / STAGES).iterdir():
        # The folder of a stage is named by its number and title: `1-minilmv2`.
        number = int(stage_folder.name.partition("-")[0])
        target = folder / STAGES / stage_folder.name
        if number < checkpoint.stage_number:
            _link_files(stage_folder, target)
        elif number == checkpoint.stage_number:
            _link_files(stage_folder, target, without=(STAGE_RECORD,))
            _link_files(checkpoint.folder, target / checkpoint.name)


def _link_files(source: Path, target: Path, without: tuple[str, ...] = ()) -> None:
    """Link the files of a folder into a new one; of its subfolders only that of a student.

    Args:
        source: The folder.
        target: The new folder.
        without: Names of files that are left out.

    Raises:
        FileNotFoundError: for a file that is removed meanwhile, by a run that goes on.
    """
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.name == STUDENT and path.is_dir():
            _link_files(path, target / path.name)
        elif path.is_file() and path.name not in without:
            try:
                os.link(path, target / path.name)
            except FileNotFoundError:
                raise
            except OSError:
                # The target is on another disk, or its file system has no links.
                shutil.copyfile(path, target / path.name)
