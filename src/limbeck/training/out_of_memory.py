"""`BatchSplitter`: runs a batch that does not fit into memory in pieces, whose gradients add up to the same.

A *step* of the optimizer has one or more *micro-batches*. A *piece* is some rows of a micro-batch.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from torch import Tensor

from limbeck.errors import TrainingError
from limbeck.training.warn import Warn

Batch = Mapping[str, Any]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a device, or the CPU's allocator, has no memory left."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, Exception) and should_reduce_batch_size(error)


class BatchSplitter:
    """Runs micro-batches whole until one does not fit, and from then on all of them in pieces that fit.

    Losses are divided by the counts of the whole step, so the losses and gradients of pieces add up to those of the
    batch. A step that runs out of memory is begun again, since the backward pass that failed has already added part of
    its gradients.

    Args:
        warn: Receives a line when pieces become smaller.

    Attributes:
        rows: Most rows of a piece; None for whole batches.
    """

    def __init__(self, warn: Warn) -> None:
        self.rows: int | None = None
        self._warn = warn
        self._step: list[Batch] = []

    def begin_step(self) -> None:
        """Forget the micro-batches of the step before."""
        self._step = []

    def run(self, inputs: Batch, run_batch: Callable[[Batch], Tensor], start_again: Callable[[], None]) -> Tensor:
        """Run a micro-batch; if it does not fit, begin the step again in smaller pieces.

        The earlier micro-batches of the step then run once more, since `start_again` drops their gradients.

        Args:
            inputs: The micro-batch.
            run_batch: Runs forward and backward on a batch; returns its share of the step's loss.
            start_again: Undoes all that the step has done so far.

        Returns:
            The share of this micro-batch in the step's loss.

        Raises:
            TrainingError: if a single row does not fit.
        """
        # All micro-batches of the step so far, of which this is the last. `begin_step` empties the list.
        self._step.append(inputs)
        batches = [inputs]
        while True:
            try:
                # When the step is run again these are all its micro-batches. The losses of the earlier ones have been
                # returned by their own calls, so only their gradients are needed, and the loss of the last counts.
                for batch in batches:
                    loss = torch.stack([run_batch(piece) for piece in _cut_into_pieces(batch, self.rows)]).sum()
                return loss
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # The whole step is run again in smaller pieces. This is outside of the handler, where the error would keep
            # the tensors of the failed pass in memory.
            self._halve_pieces()
            start_again()
            clear_device_cache(garbage_collection=True)
            batches = self._step

    def _halve_pieces(self) -> None:
        """Set the rows of a piece to half of the rows that did not fit, rounded up.

        Raises:
            TrainingError: if a single row did not fit.
        """
        # The most rows that have run at once: those of a batch, or of a piece.
        rows = max(len(batch["input_ids"]) for batch in self._step)
        if self.rows is not None:
            rows = min(self.rows, rows)
        if rows == 1:
            raise TrainingError(
                "The device runs out of memory with a single row; shorten the rows (text.length), or train in bf16."
            )
        self.rows = math.ceil(rows / 2)
        self._warn(
            f"Out of memory with {rows} rows; from now on each batch is run in pieces of at most {self.rows} rows."
        )


def _cut_into_pieces(batch: Batch, rows: int | None) -> Iterator[Batch]:
    """Cut a batch into pieces.

    Args:
        batch: Tensors `[B, ...]` by name; a value that is no tensor goes into every piece.
        rows: Most rows of a piece; None leaves the batch whole.
    """
    row_count = len(batch["input_ids"])
    if rows is None or row_count <= rows:
        yield batch
        return
    for start in range(0, row_count, rows):
        piece: dict[str, Any] = {}
        for name, value in batch.items():
            piece[name] = value[start : start + rows] if isinstance(value, Tensor) else value
        yield piece
