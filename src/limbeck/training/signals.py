"""Ctrl-C and SIGTERM: a stage saves a checkpoint and stops; outside of training a run stops at once."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState

from limbeck.core.ranks import gather, process_count
from limbeck.errors import Interrupted, Preempted
from limbeck.training.arrivals import Arrivals


class Terminated(KeyboardInterrupt):
    """SIGTERM came while nothing was trained; like Ctrl-C it passes by handlers of ordinary errors."""


@contextmanager
def _listening(handle: Any, *signals: int) -> Iterator[None]:
    """Handle signals inside the block, where this thread may; elsewhere they are the caller's business."""
    here = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, handle) for number in signals if here}
    try:
        yield
    finally:
        for number, handler in previous.items():
            # None stands for a handler that was not set from Python and cannot be set from it again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into `Terminated`, where this thread may listen; neither it nor Ctrl-C is lost in a finaliser.

    Python drops what is raised inside a `__del__`, also by the handler of a signal: such a signal is sent again.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    with _listening(stop, signal.SIGTERM), _sent_again():
        yield


_AGAIN_AFTER = 0.05  # Seconds: by then the finaliser has ended, or else the signal comes back once more.


@contextmanager
def _sent_again() -> Iterator[None]:
    """Send signals again whose exceptions were dropped inside the block."""
    earlier, timers = sys.unraisablehook, list[threading.Timer]()

    def dropped(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            earlier(unraisable)
            return
        number = signal.SIGTERM if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        timers.append(threading.Timer(_AGAIN_AFTER, signal.raise_signal, [number]))
        timers[-1].start()

    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = earlier
        for timer in timers:  # Past the block nobody listens.
            timer.cancel()
            timer.join()


class InterruptSaver(TrainerCallback):
    """Turns the first SIGINT or SIGTERM into a checkpoint after the present step and a clean stop.

    A second Ctrl-C stops at once. A second SIGTERM changes nothing: launchers and schedulers both send one, and mean
    the same. Of several processes all stop after the same step, whichever the signal came to and when.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._stops = False
        self._counts: Arrivals[None] = Arrivals()
        self._listening = ExitStack()

    @property
    def interrupted(self) -> bool:
        """Whether a signal has come to this process."""
        return self._received is not None

    def note(self, interrupted: Tensor) -> None:
        """Tell of a step how many processes a signal has come to before it.

        Args:
            interrupted: Scalar on the device, the same in every process.
        """
        self._counts.send(interrupted, None)
        for count, _ in self._counts.take():
            self._stops = self._stops or bool(count)

    def agree(self) -> bool:
        """Whether a signal has come to any process; all have to ask together."""
        received = [number for number in gather(self._received) if number is not None]
        self._received = received[0] if received else None
        return self.interrupted

    def _is_due(self) -> bool:
        """Whether to stop after the present step."""
        return self.interrupted if process_count() == 1 else self._stops

    def error(self, message: str) -> Interrupted:
        """The error that the stage ends with: its exit code tells a user's stop from a machine's."""
        return Preempted(message) if self._received == signal.SIGTERM else Interrupted(message)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = self._received or number

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Listen for the signals."""
        self._listening.enter_context(_listening(self._handle, signal.SIGINT, signal.SIGTERM))

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a checkpoint and the end of training once a signal has come."""
        if self._is_due():
            control.should_save = True
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Leave out what belongs to the end of an epoch if this is not one: the resumed run comes to it."""
        if self._is_due() and not float(state.epoch or 0.0).is_integer():
            control.should_log = control.should_evaluate = control.should_save = False

    def close(self) -> None:
        """Give the signals back."""
        self._listening.close()
