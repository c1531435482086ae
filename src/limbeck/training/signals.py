"""Ctrl-C and SIGTERM: a stage in training saves a checkpoint and stops; outside of training a run stops at once.

A measurement between the steps is left at once where that is possible. The run that goes on makes it again.

Launchers and schedulers send SIGTERM to end a process; Ctrl-C sends SIGINT. Of several processes, each or only one may
receive the signal.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState

from limbeck.core.ranks import gather, process_count
from limbeck.errors import Interrupted, Preempted
from limbeck.training.arrivals import Arrivals

_SECONDS_UNTIL_RESENT = 0.05
"""Time after which a dropped signal is sent again, so that the finaliser in which it was dropped has ended.

If it has not, the signal is dropped and sent once more.
"""
_STANDARD_ERROR = 2
"""The descriptor of standard error."""
_ANSWERS = {
    signal.SIGINT: b"\nStopping after this step. A second Ctrl-C stops at once, and loses the steps since the last "
    b"checkpoint.\n",
    signal.SIGTERM: b"\nSIGTERM came: stopping after this step.\n",
}
"""The answers to the first signal, since a step may take long."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came while nothing was trained. As a `KeyboardInterrupt` it is not caught by `except Exception`."""


class MeasurementLeftError(Exception):
    """A measurement of a stage was left before its end, since a signal has come."""


class InterruptSaver(TrainerCallback):
    """Turns the first SIGINT or SIGTERM into a checkpoint after the present step and a clean stop.

    A second Ctrl-C stops at once. A second SIGTERM changes nothing: launchers and schedulers each send one, and mean
    the same stop. All processes stop after the same step, whichever of them the signal came to.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        # With several processes: whether it is known here that any of them has received a signal.
        self._all_stop = False
        self._counts: Arrivals[None] = Arrivals()
        self._listening = ExitStack()

    @property
    def interrupted(self) -> bool:
        """Whether a signal has come to this process."""
        return self._received is not None

    def note(self, interrupted: Tensor) -> None:
        """Note how many processes had received a signal before a step; every process calls this once a step.

        Args:
            interrupted: Scalar on the device, summed over the processes and so the same in each.
        """
        # The count is copied from the device without waiting for it. With several processes `Arrivals` hands it over a
        # fixed number of steps later, and not as soon as it has arrived, so that all of them see it at the same step.
        self._counts.send(interrupted, None)
        for count, _ in self._counts.take():
            if count > 0:
                self._all_stop = True

    def agree(self) -> bool:
        """Return whether a signal has come to any process, and note it; all processes must call this together.

        The first process with a signal then decides for all which one it was, so that all of them raise the same error.
        """
        received = [number for number in gather(self._received) if number is not None]
        self._received = received[0] if received else None
        return self.interrupted

    def error(self, message: str) -> Interrupted:
        """Return the error to raise when stopping: `Preempted` after SIGTERM, `Interrupted` after Ctrl-C."""
        if self._received == signal.SIGTERM:
            return Preempted(message)
        return Interrupted(message)

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Listen for the signals."""
        self._listening.enter_context(_handled(self._handle, signal.SIGINT, signal.SIGTERM))

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a checkpoint and the end of training once a signal has come."""
        if self._is_due():
            control.should_save = True
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Cancel the work of an epoch's end if the stop came in the middle of the epoch.

        The loop calls this after a stop too. The resumed run does this work at the true end of the epoch.
        """
        is_whole = float(state.epoch or 0.0).is_integer()
        if self._is_due() and not is_whole:
            control.should_log = False
            control.should_evaluate = False
            control.should_save = False

    def close(self) -> None:
        """Restore the signal handlers from before the training."""
        self._listening.close()

    def _is_due(self) -> bool:
        """Return whether to stop after the present step."""
        # All processes must stop after the same step. So they go by the counts of `note`, which all of them see at the
        # same step, and not by a signal that only this process may have received so far.
        if process_count() > 1:
            return self._all_stop
        return self.interrupted

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Remember the first signal; stop at once at a second Ctrl-C."""
        if self.interrupted and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._received is None:
            self._received = number
            # Written without a buffer, since the signal may have come in the middle of another write.
            with suppress(OSError):
                os.write(_STANDARD_ERROR, _ANSWERS[signal.Signals(number)])


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `Terminated` at SIGTERM inside the block, if this thread may handle signals.

    Python drops an exception that is raised inside a `__del__`, also if the handler of a signal raises it. Such a
    signal is sent again.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    with _handled(stop, signal.SIGTERM), _dropped_signals_resent():
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *signals: int) -> Iterator[None]:
    """Handle signals inside the block. Only the main thread may set handlers; in others nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, previous_handler in previous.items():
            # None stands for a handler that was not set from Python and cannot be set from it again.
            signal.signal(number, signal.SIG_DFL if previous_handler is None else previous_handler)


@contextmanager
def _dropped_signals_resent() -> Iterator[None]:
    """Send signals again whose exceptions Python dropped inside the block, as it does within a destructor."""
    # Python calls this hook with an exception that it drops.
    previous_hook = sys.unraisablehook
    timers: list[threading.Timer] = []
    sys.unraisablehook = partial(_resend_signal, previous_hook=previous_hook, timers=timers)
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        # After the block nobody handles the signals, so none is sent any more.
        for timer in timers:
            timer.cancel()
            timer.join()


def _resend_signal(unraisable: Any, *, previous_hook: Callable[[Any], Any], timers: list[threading.Timer]) -> None:
    """Send a signal again whose exception Python had to drop, as it does within a destructor.

    Args:
        unraisable: The exception, as `sys.unraisablehook` receives it.
        previous_hook: Receives it if no signal has raised it.
        timers: Receives the timer that sends the signal.
    """
    exception = unraisable.exc_value
    # Ctrl-C raises a `KeyboardInterrupt`, and SIGTERM the subclass `Terminated` of it.
    if not isinstance(exception, KeyboardInterrupt):
        previous_hook(unraisable)
        return
    number = signal.SIGTERM if isinstance(exception, Terminated) else signal.SIGINT
    # It is sent a little later, when the destructor has ended: inside of it the exception would be dropped again.
    timer = threading.Timer(_SECONDS_UNTIL_RESENT, signal.raise_signal, [number])
    timers.append(timer)
    timer.start()
