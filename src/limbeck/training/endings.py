"""Runs that end early, by a signal or an error: noted in the run's record, and reported to the user in one line."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from limbeck.core import ranks
from limbeck.errors import Interrupted, LimbeckError, Preempted, TrainingError
from limbeck.training.disk_failures import disk_problem
from limbeck.training.out_of_memory import is_out_of_memory
from limbeck.training.output_folder import is_occupied
from limbeck.training.record import RunRecord
from limbeck.training.signals import Terminated, terminable

_OUT_OF_MEMORY = (
    "The device is out of memory; continue with --resume and guard.on_out_of_memory: split in the stage, or lower its "
    "training.per_device_train_batch_size (in evaluation: per_device_eval_batch_size), raise its "
    "gradient_accumulation_steps by the same factor, and start again with --overwrite."
)


@contextmanager
def endings_recorded(record: RunRecord, folder: Path) -> Iterator[None]:
    """Run the block, and note in the run's record how it ended if it raises.

    A mistake in what was asked, before anything was trained or measured, leaves the record as it was before the block.

    Args:
        record: The run's record.
        folder: The run's folder, for the message.

    Raises:
        Interrupted: after Ctrl-C; `Preempted` after SIGTERM.
        TrainingError: where a disk or the memory failed, or another process of the run.
        LimbeckError: as it was raised.
    """
    try:
        with terminable():
            yield
    except KeyboardInterrupt as error:
        message = f"Stopped. Continue with: limbeck distill --resume --output {shlex.quote(str(folder))}"
        # Of several processes a signal may reach only one, so the message says which.
        if ranks.process_index() > 0:
            message = f"Process {ranks.process_index()}: {message}"
        stop = Preempted(message) if isinstance(error, Terminated) else Interrupted(message)
        _record_ending(record, "interrupted", stop)
        raise stop from None
    except Interrupted as error:
        _record_ending(record, "interrupted", error)
        raise
    except LimbeckError as error:
        is_mistake = not isinstance(error, TrainingError)
        has_trained = record.has_trained and is_occupied(folder)
        if is_mistake and not has_trained:
            with suppress(OSError):
                record.withdraw()
        else:
            _record_ending(record, "failed", error)
        raise
    except Exception as error:
        # When another process of the run ends, the communication with it fails here: `lost` is the message on that.
        lost = ranks.lost_process(error)
        if lost is not None:
            _record_ending(record, "failed", lost)
            raise TrainingError(lost) from error
        # Of a full memory or disk the user gets a line. Any other error is a fault of the code, and stays as it is.
        _record_ending(record, "failed", f"{type(error).__name__}: {error}")
        if is_out_of_memory(error):
            raise TrainingError(_OUT_OF_MEMORY) from None
        problem = disk_problem(error, folder)
        if problem is not None:
            raise TrainingError(problem) from error
        raise


def _record_ending(record: RunRecord, status: str, problem: Any) -> None:
    """Write how the run ended into its record, if the disk allows; a failing disk may be the reason of the end."""
    with suppress(OSError):
        record.set(status, problem=str(problem))
