"""`BatchSplitter`: a batch that does not fit, in smaller pieces whose gradients add up to those of the whole."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from torch import Tensor

from limbeck.errors import TrainingError
from limbeck.training.warn import Warn

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
