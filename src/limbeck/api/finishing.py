"""`finish`: a run that was stopped is ended early, with the student of its newest checkpoint."""

import shlex
from pathlib import Path

from limbeck.api.calls import python_call
from limbeck.api.distilling import RunResult, distil_by
from limbeck.api.model_folder import ModelFolder
from limbeck.api.progress import progress_console
from limbeck.api.requests.distil import DistilRequest
from limbeck.api.requests.finish import FinishRequest
from limbeck.core import records
from limbeck.core.folder_lock import is_locked
from limbeck.core.paths import RUN_RECORD, STUDENT
from limbeck.core.run_status import status_of
from limbeck.errors import OutputError
from limbeck.training.run_checkpoints import has_saved


def carry_out_finish(request: FinishRequest) -> RunResult:
    """End a run early: make the student of its newest checkpoint, measure it, and mark the run as ended early.

    Nothing is trained. Stages that have not begun are skipped. Record, card and report say at which step the run was
    ended, and it cannot be continued afterwards. A run that is finished already is returned as it is.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`. A run that a process still holds is refused, and one without
            a checkpoint.

    Example:
        >>> result = limbeck.finish("runs/e5")
        >>> result.run.ended_early.step
        1200
    """
    folder = Path(request.run).expanduser()
    if is_finished(folder):
        console = progress_console(request.console)
        console.print(f"The run in {folder} is finished already.", highlight=False, markup=False)
        return RunResult(ModelFolder(folder / STUDENT), records.load(records.Run, folder))
    check_can_end(folder)
    return distil_by(DistilRequest(output=folder, resume=True, console=request.console), ends_early=True)


def is_finished(folder: Path) -> bool:
    """Whether the run in a folder has come to its end, and its student is there."""
    return records.load(records.Run, folder).is_finished and (folder / STUDENT).is_dir()


def check_can_end(folder: Path) -> None:
    """Refuse a folder without a run, a run that is going on, and one without a checkpoint; torch is not imported.

    Raises:
        OutputError: naming the folder.
    """
    if not (folder / RUN_RECORD).is_file():
        raise OutputError(f"'{folder}' holds no run; give the folder of a run that was stopped.")
    status = status_of(folder)
    if status.status == "running" or is_locked(folder):
        process = f"process {status.pid} on {status.host}"
        raise OutputError(f"The run in '{folder}' is still going on ({process}); stop it with Ctrl-C first.")
    if not has_saved(folder):
        raise OutputError(
            f"The run in '{folder}' has no checkpoint yet, so there is no student to keep; continue the training: "
            f"limbeck distill --resume --output {shlex.quote(str(folder))}"
        )


finish = python_call("finish", FinishRequest, carry_out_finish)
