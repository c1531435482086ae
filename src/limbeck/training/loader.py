"""`Loader`: the batches of a stage, of which every process reads its part.

Rows come in three forms: rows in memory that are read in epochs, a *stream*, which has no end, and a *schedule*: rows
of several lengths, each in epochs or a stream, one after the other. A *mix* draws the rows of an epoch from several
sources. The *position* of a stream is saved in checkpoints, so that a resumed run goes on where it stopped.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import seed_worker

from limbeck.core import ranks, records
from limbeck.core.blocks import counted
from limbeck.core.files import atomic_text
from limbeck.corpus import Corpus, Lane, RowMix, SourceReport
from limbeck.corpus.batches.batch import FILLER
from limbeck.errors import CorpusError, TrainingError
from limbeck.training.epochs import next_epoch
from limbeck.training.rows import RowsByLength, StreamedRows
from limbeck.training.sampler import LengthGroupedSampler
from limbeck.training.shared_batches import SharedBatches, dealt_batches
from limbeck.training.stream_loader import Collate, StreamLoader, begin_worker

_LOADER_OPTIONS = ("num_workers", "pin_memory", "prefetch_factor", "multiprocessing_context")
"""Options of a data loader that training arguments have, there with `dataloader_` before them."""


class Loader(TrainerCallback):
    """Loads the rows of a stage: its steps have the same rows with any number of processes and micro-batches.

    A step is made of a number of rows: 8 in one process are 4 in two, or 2 micro-batches of 4. Batches stay on the
    host; `DistillationTrainer` moves them. Each process reads its own part of a stream, whose position is saved with
    every checkpoint. As a callback the loader follows the epochs.

    Args:
        arguments: The training arguments.
        collate: Makes batches of rows.
        drop_last: Whether an epoch ends with its last full batch.
        mix: Draws the rows of an epoch; None for every row once.
        whole_steps: Fill the last step of an epoch with empty micro-batches.

    Attributes:
        sampler: The order of the rows, for rows in memory.
        stream: The loader of the stream, for a stream.
        by_length: The loader of the lengths, for a schedule.

    `training` sets one of these three, by the form of the rows; the other two stay None.
    """

    def __init__(
        self,
        arguments: TrainingArguments,
        collate: Collate,
        *,
        drop_last: bool,
        mix: RowMix | None = None,
        whole_steps: bool = False,
    ) -> None:
        self.drop_last = drop_last
        # `training` sets one of these three, by the form of the rows.
        self.sampler: LengthGroupedSampler | None = None
        self.stream: StreamLoader | None = None
        self.by_length: LoaderByLength | None = None
        self._arguments = arguments
        self._lane = Lane(arguments.process_index, arguments.world_size)
        self._collate = collate
        self._mix = mix
        self._whole_steps = whole_steps
        self._options = {name: getattr(arguments, f"dataloader_{name}") for name in _LOADER_OPTIONS}

    @property
    def rows_a_step(self) -> int:
        """Rows of an optimizer step, over its micro-batches and all processes."""
        arguments = self._arguments
        return arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps

    def training(self, rows: Any) -> DataLoader[Any] | StreamLoader | LoaderByLength:
        """Load this process' part of the rows to train on.

        Raises:
            TrainingError: if they make no batch.
        """
        if isinstance(rows, RowsByLength):
            self.by_length = self._loader_by_length(rows)
            return self.by_length
        if isinstance(rows, StreamedRows):
            self.stream = self._stream_loader(rows)
            return self.stream
        return self._loader_of_stored_rows(rows)

    def _loader_by_length(self, rows: RowsByLength) -> LoaderByLength:
        """Load rows by a schedule of lengths, and set the steps of the training, which it decides."""
        arguments = self._arguments
        loaders = [
            Loader(arguments, self._collate, drop_last=self.drop_last, mix=mix, whole_steps=True) for mix in rows.mixes
        ]
        # A training without `max_steps` has the steps of its epochs, which the loader of the lengths counts.
        by_length = LoaderByLength(
            loaders, rows, micro_batches=arguments.gradient_accumulation_steps, max_steps=arguments.max_steps
        )
        # By default a resumed training loop reads and drops all batches up to its step. This loader begins there by
        # itself.
        arguments.ignore_data_skip = True
        arguments.max_steps = by_length.ends[-1]
        return by_length

    def _stream_loader(self, rows: StreamedRows) -> StreamLoader:
        """Load rows that are read from their sources while they are trained on."""
        arguments = self._arguments
        # A stream begins by itself at the position that was saved, so no batches are to be read and dropped.
        arguments.ignore_data_skip = True
        return StreamLoader(
            rows,
            self._collate,
            self._lane,
            batch_size=arguments.train_batch_size,
            seed=arguments.seed,
            options=self._options,
        )

    def _loader_of_stored_rows(self, rows: Any) -> DataLoader[Any]:
        """Load the rows of a data set, those of similar length together.

        Raises:
            TrainingError: if they make no batch.
        """
        arguments = self._arguments
        multiple = 1
        if self._whole_steps:
            multiple = arguments.gradient_accumulation_steps
        batches = SharedBatches(
            self.sample(rows),
            arguments.train_batch_size,
            self._lane,
            drop_last=self.drop_last,
            multiple=multiple,
        )
        if len(batches) == 0:
            batch_size = arguments.train_batch_size * arguments.world_size
            error = TrainingError(
                f"The stage would train no step: it has {counted(len(rows), 'row')}, and a batch takes {batch_size}; "
                "lower per_device_train_batch_size or leave out dataloader_drop_last."
            )
            raise ranks.raised_on_all_ranks(error)
        # A worker that draws words at random (for masks, say) draws others than the workers beside it.
        begin_seeded_worker = partial(
            _begin_seeded_worker, num_workers=arguments.dataloader_num_workers, rank=arguments.process_index
        )
        return self._load(rows, batches, begin_seeded_worker)

    def sample(self, rows: Any) -> Sampler[int]:
        """Sample rows of similar length together; see `LengthGroupedSampler`."""
        self.sampler = LengthGroupedSampler(rows["length"][:], self.rows_a_step, self._arguments.seed, self._mix)
        return self.sampler

    def held_out(self, rows: Any) -> DataLoader[Any]:
        """Load this process' part of the held-out rows."""
        return self._load(rows, dealt_batches(len(rows), self._arguments.eval_batch_size, self._lane))

    def save_position(self, folder: Path) -> None:
        """Write the position of streams beside a checkpoint's other files; nothing for other rows."""
        states = [stream.state_dict() for stream in self._streams]
        if not states:
            return
        # A schedule has a list of positions, one for each length. Without one the file has the position of the only
        # stream, as checkpoints of earlier versions have it.
        position = states if self.by_length is not None else states[0]
        atomic_text(self._position_file(folder), json.dumps(position))

    def load_position(self, folder: Path) -> None:
        """Go to the position that `save_position` wrote.

        Raises:
            TrainingError: if it is of another number of processes, workers or rows a batch.
        """
        if not self._streams:
            return
        position = json.loads(self._position_file(folder).read_text(encoding="utf-8"))
        states = position if self.by_length is not None else [position]
        for stream, state in zip(self._streams, states, strict=True):
            stream.load_state_dict(state)

    def lengths_until(self, step: int) -> list[tuple[int, int]]:
        """Return each length of a schedule with the steps that were trained at it; empty without a schedule.

        Args:
            step: Optimizer steps that were taken in all.
        """
        if self.by_length is None:
            return []
        lengths = self.by_length.rows.schedule.lengths
        return list(zip(lengths, self.by_length.steps_of_lengths(step), strict=True))

    def index_of_length(self, step: int) -> int:
        """Return the index of the length that the next step reads; 0 without a schedule.

        Args:
            step: Optimizer steps that were taken.
        """
        if self.by_length is None:
            return 0
        # The number of lengths that have ended by then.
        return bisect_right(self.by_length.ends, step)

    def epoch_of(self, step: int) -> int | None:
        """Return the epoch of a schedule that the next step is in; see `LoaderByLength.epoch_of`.

        Args:
            step: Optimizer steps that were taken.

        Returns:
            The epoch, from 0; None without a schedule, since the training loop then counts the epochs.
        """
        return None if self.by_length is None else self.by_length.epoch_of(step)

    def work_until(self, step: int) -> float:
        """Return the work that is done after a number of steps, to estimate the time that is left.

        The unit of work is a step or, for a schedule, a token of each row: longer rows take longer.
        """
        if self.by_length is None:
            return step
        return sum(length * steps for length, steps in self.lengths_until(step))

    def relative_length(self, first: int, last: int) -> float:
        """Return the mean length of the rows of some steps by that of all rows; 1 for a stream or a schedule.

        Args:
            first: The first of the steps, from 0.
            last: The step behind the last of them.
        """
        if self.sampler is None:
            return 1.0
        return self.sampler.relative_length(first * self.rows_a_step, last * self.rows_a_step)

    def on_epoch_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """Set the epoch of the sampler, and of rows that are masked anew every epoch.

        The loop itself does not reach a sampler that is inside of another one.
        """
        # The loader of a schedule of lengths begins at this step when the loop, after this call, iterates over it.
        if self.by_length is not None:
            self.by_length.step = state.global_step
        # `state.epoch` counts the epochs that are done. It is a fraction in a run that is resumed within an epoch. Of a
        # stream or a schedule it is the share of all steps.
        epoch = next_epoch(state.epoch or 0.0)
        if self.sampler is not None:
            self.sampler.set_epoch(epoch)
        rows: Any = getattr(train_dataloader, "dataset", None)
        if hasattr(rows, "set_epoch"):
            rows.set_epoch(epoch)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Set the epoch of a stream or schedule to the share of all steps that is done, in a resumed run too."""
        if self.stream is not None or self.by_length is not None:
            state.epoch = state.global_step / state.max_steps

    def describe_drawn(self, corpus: Corpus, steps: int) -> records.Drawn | None:
        """Describe for the record how many rows of each source were trained on, over all processes.

        For a stream the description has a report on skipped and repaired text too, summed over its lanes.

        Args:
            corpus: The corpus of the stage.
            steps: Optimizer steps that were taken.

        Returns:
            The description; None for rows in memory that no mix draws, since every row of every source is then read.
        """
        report: SourceReport | None = None
        if self._streams:
            counts, report = self._count_rows_of_streams()
        else:
            drawn_counts = self._count_rows_of_mixes(steps)
            if drawn_counts is None:
                return None
            counts = drawn_counts

        # Sources of the same title are counted together.
        rows_by_title: dict[str, int] = {}
        for title, count in zip(corpus.titles, counts, strict=True):
            rows_by_title[title] = rows_by_title.get(title, 0) + count
        # At least 1, since a stream may have read nothing yet.
        all_rows = max(sum(counts), 1)
        shares = {title: round(count / all_rows, 6) for title, count in rows_by_title.items()}
        drawn: dict[str, Any] = {"rows": rows_by_title, "shares": shares}
        if report is not None:
            drawn["report"] = report.to_dict()
        return records.Drawn.read(drawn)

    def _count_rows_of_streams(self) -> tuple[list[int], SourceReport]:
        """Return the rows of each source that were read, and the report on repaired text, over all processes."""
        states: list[dict[str, Any]] = []
        for stream in self._streams:
            # Each process has the states of the lanes that it reads.
            for states_by_lane in ranks.gather(stream.states):
                states.extend(states_by_lane.values())
        report = SourceReport()
        for state in states:
            report.merge(SourceReport.from_dict(state["report"]))
        counts: list[int] = np.sum([state["drawn"] for state in states], axis=0).tolist()
        return counts, report

    def _count_rows_of_mixes(self, steps: int) -> list[int] | None:
        """Return how many rows of each source were read from memory, over all lengths; None without a mix of sources.

        Args:
            steps: Optimizer steps that were taken.
        """
        steps_by_loader = [(self, steps)]
        if self.by_length is not None:
            steps_by_loader = self.by_length.steps_by_loader(steps)
        counts_by_length = []
        for loader, steps_of_length in steps_by_loader:
            if loader._mix is None:
                return None
            assert loader.sampler is not None
            counts_by_length.append(loader.sampler.drawn(loader._count_rows_by_epoch(steps_of_length)))
        counts: list[int] = np.sum(counts_by_length, axis=0).tolist()
        return counts

    def _count_rows_by_epoch(self, steps: int) -> list[int]:
        """Return the number of rows that were read in each epoch, of which the last one may not have ended.

        Args:
            steps: Optimizer steps that were taken.
        """
        assert self.sampler is not None
        rows = len(self.sampler)
        if self.drop_last:
            rows -= rows % (self._arguments.train_batch_size * self._arguments.world_size)
        # The last step of an epoch may have fewer rows.
        steps_of_epoch = math.ceil(rows / self.rows_a_step)
        whole_epochs, further_steps = divmod(steps, steps_of_epoch)
        rows_of_last_epoch = min(further_steps * self.rows_a_step, rows)
        return [*[rows] * whole_epochs, rows_of_last_epoch]

    @property
    def _streams(self) -> list[StreamLoader]:
        """The streams that are read, one for each length."""
        loaders = [self] if self.by_length is None else self.by_length.loaders
        return [loader.stream for loader in loaders if loader.stream is not None]

    def _position_file(self, folder: Path) -> Path:
        return folder / f"stream_position_{self._arguments.process_index}.json"

    def _load(
        self, rows: Any, batches: Any, begin_worker_process: Callable[[int], None] = begin_worker
    ) -> DataLoader[Any]:
        """Load rows in memory.

        Args:
            rows: The rows.
            batches: Yields the indices of the rows of each batch of this process; an empty list where the other
                processes still have rows and this one has none.
            begin_worker_process: Called in each worker process with the worker's number, before it reads rows.
        """
        return DataLoader(
            rows,
            batch_sampler=batches,
            # An empty batch is filled with one of the rows, so the rows are handed over too.
            collate_fn=partial(_collate_or_fill, self._collate, rows),
            persistent_workers=self._arguments.dataloader_persistent_workers,
            # A generator of its own, so that the workers' seeds are not drawn from the random stream of dropout.
            generator=torch.Generator(),
            worker_init_fn=begin_worker_process,
            **self._options,
        )


class LoaderByLength:
    """Loads the rows of several lengths one after the other; the length changes between two optimizer steps.

    An epoch of a length ends with a whole step. A stream goes on at the next length from the text at which its last
    window began, since windows are cut to another length now. Epochs are numbered through all lengths for the masking,
    so that a block that two lengths have in common is masked anew.

    Args:
        loaders: The loader of each length.
        rows: The rows.
        micro_batches: Micro-batches of a step.
        max_steps: Steps of the training; 0 or less for as many as the epochs have.

    Attributes:
        ends: For each length the number of steps, from the beginning of the training, at which it ends.
        step: Steps that are done when the next iteration over the loader begins.

    Raises:
        TrainingError: if a length would have no batch or no step.
    """

    def __init__(self, loaders: Sequence[Loader], rows: RowsByLength, *, micro_batches: int, max_steps: int) -> None:
        self.loaders = loaders
        self.rows = rows
        # Steps that are done when the next iteration begins; `on_epoch_begin` of the outer loader sets it.
        self.step = 0
        self._micro_batches = micro_batches
        self._loaded: list[Any] = [loader.training(part) for loader, part in zip(loaders, rows.parts, strict=True)]
        # For each length the steps of an epoch; 0 of a stream, which has no epochs.
        self._epoch_steps: list[int] = []
        for loaded in self._loaded:
            steps_of_epoch = 0
            if not isinstance(loaded, StreamLoader):
                steps_of_epoch = len(loaded.batch_sampler) // micro_batches
            self._epoch_steps.append(steps_of_epoch)
        # For each length the step of the training at which it ends.
        try:
            self.ends = rows.schedule.ends(max_steps, self._epoch_steps)
        except CorpusError as error:
            raise ranks.raised_on_all_ranks(TrainingError(str(error))) from None

    def steps_of_lengths(self, step: int | None = None) -> list[int]:
        """Return the number of steps at each length: of the whole training, or up to a step of it.

        Args:
            step: Steps that were taken in all; None for all steps that the training will take.
        """
        if step is None:
            step = self.ends[-1]
        # A length has the steps from the end of the one before it to its own end.
        return [max(min(step, end) - begin, 0) for begin, end in pairwise([0, *self.ends])]

    def steps_by_loader(self, step: int) -> list[tuple[Loader, int]]:
        """Return the loader of each length with the steps that were taken at it, after `step` steps in all."""
        return list(zip(self.loaders, self.steps_of_lengths(step), strict=True))

    def epoch_of(self, step: int) -> int:
        """Return the epoch that the next step is in, from 0; 0 for a stream.

        The numbers go on from one length to the next: after two epochs of the first length, the second one begins with
        epoch 2.

        Args:
            step: Steps that were taken in all.
        """
        # The length that the next step reads. Behind the last step of the training this is still the last length.
        present_length = min(bisect_right(self.ends, step), len(self.ends) - 1)
        if self._epoch_steps[present_length] == 0:
            return 0
        # Every epoch of the lengths before counts, also a last one that was cut short by the end of its length.
        steps_in_all = self.steps_of_lengths()
        epochs_before = 0
        for length in range(present_length):
            epochs_before += math.ceil(steps_in_all[length] / self._epoch_steps[length])
        steps_at_present_length = self.steps_of_lengths(step)[present_length]
        return epochs_before + steps_at_present_length // self._epoch_steps[present_length]

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the batches of the remaining steps, length after length."""
        steps_done = self.steps_of_lengths(self.step)
        steps = self.steps_of_lengths()
        for index, loaded in enumerate(self._loaded):
            if isinstance(loaded, StreamLoader):
                yield from self._read_stream(index, done=steps_done[index], steps=steps[index])
            else:
                yield from self._read_epochs(index, done=steps_done[index], steps=steps[index])

    def _read_stream(self, index: int, done: int, steps: int) -> Iterator[dict[str, torch.Tensor]]:
        """Read the remaining steps of a length from a stream.

        Args:
            index: Index of the length.
            done: Steps of this length that are done.
            steps: Steps of this length in all.
        """
        stream = self._loaded[index]
        if index > 0 and done == 0:
            stream.begin_behind(self._loaded[index - 1])
        if done < steps:
            yield from islice(stream, (steps - done) * self._micro_batches)

    def _read_epochs(self, index: int, done: int, steps: int) -> Iterator[dict[str, torch.Tensor]]:
        """Read the remaining steps of a length from rows in memory, epoch after epoch.

        Args:
            index: Index of the length.
            done: Steps of this length that are done.
            steps: Steps of this length in all.
        """
        rows = self.rows.parts[index]
        loaded = self._loaded[index]
        sampler = self.loaders[index].sampler
        assert sampler is not None
        # The steps of all lengths before.
        first_step = self.ends[index] - steps
        epoch_steps = self._epoch_steps[index]
        while done < steps:
            epoch, done_of_epoch = divmod(done, epoch_steps)
            remaining_of_epoch = min(epoch_steps - done_of_epoch, steps - done)
            sampler.set_epoch(epoch)
            # Rows that change with the epoch, such as those with masked tokens, count it over all lengths.
            if hasattr(rows, "set_epoch"):
                rows.set_epoch(self.epoch_of(first_step + done))
            # A resumed epoch begins behind the batches that were read before.
            loaded.batch_sampler.skip = done_of_epoch * self._micro_batches
            yield from islice(loaded, remaining_of_epoch * self._micro_batches)
            done += remaining_of_epoch


def _collate_or_fill(collate: Collate, rows: Any, batch: Sequence[Any]) -> dict[str, Any]:
    """Make a batch of rows.

    An empty batch becomes a *filler*: the first row, marked so that it counts nothing. A process without rows needs it,
    since all processes run the model together.
    """
    if batch:
        return collate(batch)
    return {**collate([rows[0]]), FILLER: True}


def _begin_seeded_worker(worker: int, num_workers: int, rank: int) -> None:
    """Begin a worker process, and give its random numbers a seed of their own."""
    begin_worker(worker)
    seed_worker(worker, num_workers, rank)
