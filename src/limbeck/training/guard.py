"""Steps that go wrong: bad losses, whose batches are saved, missing memory, and signals; no step waits for the host."""

import math
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState

from limbeck.core.ranks import gather, process_count, process_index, raised_on_all_ranks
from limbeck.errors import Interrupted, Preempted, TrainingError
from limbeck.kernels.rounded_adamw import RoundedAdamW
from limbeck.methods.composition import Term
from limbeck.recipe.stages import GuardSpec
from limbeck.training.checkpoints import Warn
from limbeck.training.module import sum_over_ranks

WINDOW = 64
"""Good steps whose losses a new one is compared with."""
_ENOUGH = 16  # Before that the median says little.


# The batch of a step that went wrong, saved for study.


FOLDER = "bad_batches"
_KEPT = 20


def save_bad_batch(folder: Path, step: int, batches: Sequence[Mapping[str, Any]], problem: str) -> Path | None:
    """Save the micro-batches of a step, the first twenty times.

    Args:
        folder: The stage's folder.
        step: The step, from 1.
        batches: Its micro-batches; tensor `x` of the second one is saved as `1.x`.
        problem: What went wrong with them; it is in the file's metadata beside the step.

    Returns:
        The file, of which each of several processes has one; None if there are enough, nothing to save, or the disk
        does not take it: it must not hide the problem.
    """
    tensors = {
        f"{index}.{name}": tensor.detach().cpu().contiguous()
        for index, batch in enumerate(batches)
        for name, tensor in batch.items()
        if isinstance(tensor, Tensor)
    }
    part = f".process-{process_index()}" if process_count() > 1 else ""
    target = folder / FOLDER / f"step-{step}{part}.safetensors"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        enough = len(list(target.parent.glob("step-*.safetensors"))) >= _KEPT * process_count() and not target.exists()
        if enough or not tensors:
            return None
        save_file(tensors, str(target), metadata={"step": str(step), "problem": problem})
    except (OSError, SafetensorError):
        return None
    return target


# Leaving weights and optimizer as they are in a step, decided on the device.


def skip_update(optimizer: Any, module: nn.Module, bad: Tensor, *, on_device: bool) -> None:
    """Let the optimizer's next step change nothing if the step is bad.

    Fused optimizers take a flag, made for loss scaling, and pass over weights, moments and step counts where
    it is set: no host has to know. The others pass over parameters without a gradient, and the host has to look.

    Args:
        optimizer: The optimizer, or accelerate's around it.
        module: The trained module, with gradients.
        bad: Bool scalar on the device.
        on_device: Whether the optimizer takes a flag, see `takes_flag`.
    """
    if on_device:
        getattr(optimizer, "optimizer", optimizer).found_inf = bad.float()
    elif bool(bad):
        module.zero_grad(set_to_none=True)


def takes_flag(optimizer: Any) -> bool:
    """Whether an optimizer is fused throughout."""
    optimizer = getattr(optimizer, "optimizer", optimizer)
    return isinstance(optimizer, RoundedAdamW) or all(group.get("fused") for group in optimizer.param_groups)


# Buffers and random state at the start of a step, restored when the step is retried or skipped.


class RandomStreams:
    """The places in the random streams that dropout draws from, to go back to.

    Args:
        device: Where is drawn; on a GPU from its stream and the CPU's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cpu = torch.get_rng_state()
        self._gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        """Go back."""
        torch.set_rng_state(self._cpu)
        if self._gpu is not None:
            torch.cuda.set_rng_state(self._gpu, self._device)


class StepStart:
    """Buffers and random streams at the start of a step; gradients are left to the optimizer.

    Args:
        buffers: Buffers of what is trained; those of floating point are remembered.
        device: Where dropout is drawn.
    """

    def __init__(self, buffers: Iterable[Tensor], device: torch.device) -> None:
        self._buffers = [(buffer, buffer.clone()) for buffer in buffers if buffer.is_floating_point()]
        self.random = RandomStreams(device)

    def restore_buffers(self, where: Tensor | None = None) -> None:
        """Put the buffers back.

        Args:
            where: Bool scalar on the device; nothing is put back where it is false. None puts them back.
        """
        for buffer, before in self._buffers:
            buffer.copy_(before if where is None else torch.where(where.to(buffer.device), before, buffer))


# Asynchronous copies from device to host: read one or two steps later, so that no step synchronises.


Note = TypeVar("Note")

# Several processes must all act at the same step, so they cannot go by what has arrived at each. Two steps later the
# values are there, or the host is so far ahead of the device that it can wait.
_DELAY = 2


class Arrivals(Generic[Note]):
    """Hands values over in the order in which they were sent, each with a note.

    On a CPU they are there at once. From a GPU they are handed over when they have arrived; with several processes
    always two sendings later.
    """

    def __init__(self) -> None:
        self._sent: deque[tuple[Tensor, torch.cuda.Event | None, Note]] = deque()

    def send(self, values: Tensor, note: Note) -> None:
        """Send values to the host."""
        if not values.is_cuda:
            self._sent.append((values.detach().clone(), None, note))
            return
        host = values.detach().to("cpu", non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._sent.append((host, event, note))

    def take(self, *, wait: bool = False) -> Iterator[tuple[Tensor, Note]]:
        """Yield what has arrived.

        Args:
            wait: Wait for all that was sent.
        """
        while self._sent and (wait or self._is_due()):
            values, event, note = self._sent.popleft()
            if event is not None:
                event.synchronize()
            yield values, note

    def _is_due(self) -> bool:
        event = self._sent[0][1]
        if event is None:
            return True
        return event.query() if process_count() == 1 else len(self._sent) > _DELAY


Batches = Sequence[Mapping[str, Any]]


class LossGuard:
    """Judges every step before its update, and acts on a bad one as soon as the host knows.

    Terms, loss and gradient are judged on the device that computed them. On a CPU the host knows at once. From a GPU
    the verdict of a step travels while the next ones run, and the host looks at those that have arrived; it waits for
    the rest only before it logs or saves. A step that is skipped is skipped on the device, in time.

    Args:
        terms: The terms of the loss.
        policy: What to do.
        device: Where the terms are.
        folder: The stage's folder, for the batches; every process writes its own.
        warn: Receives a line on every step that is skipped.
    """

    def __init__(
        self, terms: Sequence[Term], policy: GuardSpec, device: torch.device, folder: Path, warn: Warn
    ) -> None:
        self.policy = policy
        self.skipped = 0
        self._in_a_row = 0
        self._names = [term.name for term in terms]
        self._weights = torch.tensor([term.weight for term in terms], dtype=torch.float64, device=device)
        self._step_terms = torch.zeros_like(self._weights)
        # The losses of the last good steps, and how many there were.
        self._losses = torch.full((WINDOW,), torch.nan, dtype=torch.float64, device=device)
        self._good = torch.zeros((), dtype=torch.int64, device=device)
        self._verdicts: Arrivals[tuple[int, Batches]] = Arrivals()
        self._folder = folder
        self._warn = warn

    def note(self, terms: Mapping[str, Tensor]) -> None:
        """Add the terms of one micro-batch to those of its step."""
        self._step_terms = self._step_terms + torch.stack([terms[name].double() for name in self._names])

    def forget_step(self) -> None:
        """Forget the micro-batches of a step that starts again."""
        self._step_terms = torch.zeros_like(self._weights)

    def settle(self, step: int, norm: Tensor | None, batches: Batches) -> Tensor:
        """Judge a step, all of its micro-batches being noted.

        Args:
            step: The step, from 1.
            norm: Norm of its gradient; None where a loss scale makes it infinite now and then.
            batches: Its micro-batches.

        Returns:
            Bool scalar on the device: whether the step is bad, the same on every rank.

        Raises:
            TrainingError: see `check`.
        """
        terms = sum_over_ranks(self._step_terms)
        self.forget_step()
        verdict = self._judge(terms, terms.new_zeros(()) if norm is None else norm.to(terms))
        self._verdicts.send(verdict, (step, batches))
        self._look(wait=False)
        return verdict[0].bool()

    def check(self) -> None:
        """Look at every step that was judged, waiting for those whose verdicts are still on their way.

        Raises:
            TrainingError: for a step that is bad where the policy is to stop, or too many skipped ones in a row.
        """
        self._look(wait=True)

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as JSON has it; None stands for no loss."""
        losses = [None if value != value else value for value in self._losses.tolist()]
        return {"skipped": self.skipped, "in_a_row": self._in_a_row, "losses": losses, "good": int(self._good)}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` gave."""
        self.skipped, self._in_a_row = state["skipped"], state["in_a_row"]
        self._losses = self._losses.new_tensor([torch.nan if value is None else value for value in state["losses"]])
        self._good = self._good.new_tensor(state["good"])

    def _judge(self, terms: Tensor, norm: Tensor) -> Tensor:
        """Judge a step, and remember its loss if it is good.

        Returns:
            Float64 `[4 + terms]`: 1 for a bad step and 0 for a good one; its loss; the median of the losses before it,
            NaN while there are too few, or without a bound on the loss; the norm of its gradient; its terms.
        """
        loss, factor = (self._weights * terms).sum(), self.policy.explosion_factor
        bad = ~(terms.isfinite().all() & norm.isfinite())
        median = torch.full_like(loss, torch.nan)
        if factor is not None:
            # Along a dimension: a GPU that finds the median of all waits for its place.
            median = torch.where(self._good >= _ENOUGH, self._losses.nanmedian(0).values, median)
            bad = bad | (loss > factor * median)
            here = torch.arange(WINDOW, device=loss.device) == self._good % WINDOW
            self._losses = torch.where(here & ~bad, loss, self._losses)
            self._good = self._good + (~bad).long()
        return torch.cat([torch.stack([bad.double(), loss, median, norm]), terms])

    def _look(self, *, wait: bool) -> None:
        for verdict, (step, batches) in self._verdicts.take(wait=wait):
            bad, *found = verdict.tolist()
            if bad:
                self._act(step, batches, self._describe(step, *found))
            else:
                self._in_a_row = 0

    def _act(self, step: int, batches: Batches, problem: str) -> None:
        saved = save_bad_batch(self._folder, step, batches, problem)
        where = f"; its batch is in '{saved}'" if saved is not None else ""
        if self.policy.on_bad_loss == "stop":
            line = (
                f"{problem}; the run stopped and saved nothing after it{where}. Lower the stage's training."
                "learning_rate or raise its training.warmup_steps, and start again with --overwrite, or in "
                "another folder to keep what was saved; or continue with --resume and guard.on_bad_loss: skip."
            )
        else:
            self.skipped += 1
            self._in_a_row += 1
            if self._in_a_row <= self.policy.skips_in_a_row:
                self._warn(f"{problem}; the step is skipped{where}.")
                return
            line = (
                f"{problem}, as in {self.policy.skips_in_a_row} skipped steps right before it{where}. Lower the "
                "stage's training.learning_rate and start again with --overwrite, or in another folder; or "
                "continue with --resume and a higher guard.skips_in_a_row."
            )
        raise raised_on_all_ranks(TrainingError(line))

    def _describe(self, step: int, loss: float, median: float, norm: float, *terms: float) -> str:
        for name, value in zip(self._names, terms, strict=True):
            if not math.isfinite(value):
                return f"The loss term '{name}' became {value} at step {step}"
        if not math.isfinite(norm):
            return f"The norm of the gradient became {norm} at step {step}, though the loss was finite"
        return (
            f"The loss became {loss:.4g} at step {step}, more than {self.policy.explosion_factor:g} times its "
            f"running median {median:.4g}"
        )


# Out of memory: the same batch in smaller pieces, whose gradients add up to those of the whole.


Batch = Mapping[str, Any]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device, or the CPU's allocator, has no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, Exception) and should_reduce_batch_size(error)
    )


class BatchSplitter:
    """Runs micro-batches whole until one does not fit, and from then on all of them in pieces that fit.

    Losses are divided by the counts of the whole step, so pieces sum to the same loss and gradient. A step that runs
    out of memory is begun again, since a backward pass that breaks off leaves part of its gradients behind.

    Args:
        warn: Receives a line when pieces become smaller.
    """

    def __init__(self, warn: Warn) -> None:
        self.rows: int | None = None
        """Most rows of a piece; None for whole batches."""
        self._warn = warn
        self._step: list[Batch] = []

    def begin_step(self) -> None:
        """Forget the micro-batches of the step before."""
        self._step = []

    def run(self, inputs: Batch, run: Callable[[Batch], Tensor], start_again: Callable[[], None]) -> Tensor:
        """Run a micro-batch, if need be together with those of its step that ran before.

        Args:
            inputs: The micro-batch.
            run: Runs forward and backward on a batch; returns its share of the step's loss.
            start_again: Takes back what the step has done so far.

        Returns:
            The share of this micro-batch in the step's loss.

        Raises:
            TrainingError: if a single row does not fit.
        """
        self._step.append(inputs)
        waiting = [inputs]
        while True:
            try:
                losses = [torch.stack([run(piece) for piece in _pieces(batch, self.rows)]).sum() for batch in waiting]
                return losses[-1]
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # Outside of the handler: the error holds on to the memory of the broken pass.
            self._shrink(max(len(batch["input_ids"]) for batch in self._step))
            start_again()
            clear_device_cache(garbage_collection=True)
            waiting = self._step

    def _shrink(self, rows: int) -> None:
        whole = rows if self.rows is None else min(self.rows, rows)
        if whole == 1:
            raise TrainingError(
                "The device runs out of memory with a single row; shorten the rows (text.length), or train in bf16."
            )
        self.rows = -(-whole // 2)
        self._warn(f"Out of memory with {whole} rows; from here on batches run in pieces of at most {self.rows}.")


def _pieces(batch: Batch, rows: int | None) -> Iterator[Batch]:
    """Cut a batch along its rows; what is no tensor goes into every piece."""
    whole = len(batch["input_ids"])
    if rows is None or whole <= rows:
        yield batch
        return
    for start in range(0, whole, rows):
        yield {
            name: value[start : start + rows] if isinstance(value, Tensor) else value for name, value in batch.items()
        }


# Ctrl-C and SIGTERM: finish the step, save a checkpoint, then stop; outside of training, stop at once.


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
