"""`Loader`: the batches of a stage, of which every process reads its part, and the position in them of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from accelerate.utils import gather_object
from torch.utils.data import DataLoader, IterableDataset, Sampler, get_worker_info
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import seed_worker

from limbeck.core.files import atomic_text, read_json
from limbeck.core.ranks import raised_on_all_ranks
from limbeck.core.workers import single_threaded_tokenizers
from limbeck.corpus import Corpus, Lane, SourceReport
from limbeck.errors import CorpusError, TrainingError
from limbeck.training.data import LengthGroupedSampler, MixedRows, StreamedRows, make_sampler
from limbeck.training.module import FILLER

Collate = Callable[[Sequence[Any]], dict[str, torch.Tensor]]


class Loader:
    """Loads the rows of a stage: its steps have the same rows with any number of processes and micro-batches.

    A step is made of a number of rows: 8 in one process are 4 in two, or 2 micro-batches of 4. Batches stay on the
    host; `DistillationTrainer` moves them. A stream needs no sharding over processes, each reads its own part; its
    position is saved with every checkpoint.

    Args:
        arguments: Of the training.
        collate: Makes batches of rows.
        drop_last: Whether an epoch ends with its last full batch.
        add_callback: Registers callbacks that follow the epochs.
    """

    def __init__(
        self,
        arguments: TrainingArguments,
        collate: Collate,
        *,
        drop_last: bool,
        add_callback: Callable[[TrainerCallback], None],
    ) -> None:
        self.drop_last = drop_last
        self.sampler: LengthGroupedSampler | None = None
        self.stream: StreamLoader | None = None
        self._arguments = arguments
        self._collate = collate
        self._add_callback = add_callback

    @property
    def rows_a_step(self) -> int:
        """Rows of an optimizer step, over its micro-batches and all processes."""
        arguments = self._arguments
        return arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps

    def training(self, rows: Any) -> DataLoader[Any] | StreamLoader:
        """Load the rows to train on, those of this process.

        Raises:
            TrainingError: if they make no batch.
        """
        if isinstance(rows, StreamedRows):
            return self._streamed(rows)
        arguments = self._arguments
        batches = SharedBatches(
            self.sample(rows),
            arguments.train_batch_size,
            index=arguments.process_index,
            count=arguments.world_size,
            drop_last=self.drop_last,
        )
        if len(batches) == 0:
            raise raised_on_all_ranks(
                TrainingError(
                    f"The stage would train no step: {len(rows)} rows make no batch of "
                    f"{arguments.train_batch_size * arguments.world_size}; lower per_device_train_batch_size or leave "
                    "out dataloader_drop_last."
                )
            )
        seeded = partial(seed_worker, num_workers=arguments.dataloader_num_workers, rank=arguments.process_index)
        return self._load(rows, batches, worker_init_fn=seeded)

    def sample(self, rows: Any) -> Sampler[int]:
        """Sample rows of similar length together; see `LengthGroupedSampler`."""
        sampler = self.sampler = make_sampler(rows, self.rows_a_step, self._arguments.seed)
        self._add_callback(EpochSetter(sampler, *([rows] if hasattr(rows, "set_epoch") else [])))
        return sampler

    def held_out(self, rows: Any) -> DataLoader[Any]:
        """Load the rows to measure on, those of this process."""
        index, count = self._arguments.process_index, self._arguments.world_size
        return self._load(rows, dealt_batches(len(rows), self._arguments.eval_batch_size, index=index, count=count))

    def save_position(self, folder: Path) -> None:
        """Write the position of a stream beside a checkpoint's other files; nothing for other rows."""
        if self.stream is not None:
            atomic_text(self._position_file(folder), json.dumps(self.stream.state_dict()))

    def load_position(self, folder: Path) -> None:
        """Go to the position that `save_position` wrote.

        Raises:
            TrainingError: if it is of another number of processes, workers or rows a batch.
        """
        if self.stream is not None:
            self.stream.load_state_dict(json.loads(self._position_file(folder).read_text(encoding="utf-8")))

    def restore_position(self, rows: Any, folder: Path) -> None:
        """Take the position of a stream from a checkpoint, without reading on."""
        if isinstance(rows, StreamedRows):
            self._streamed(rows).load_state_dict(read_json(self._position_file(folder)))

    def describe_drawn(self, rows: Any, corpus: Corpus, steps: int) -> dict[str, Any] | None:
        """Return how many rows of each source were trained on, over all processes; None where they are not mixed.

        Of a stream also the skipped and repaired text; every lane counts its own.

        Args:
            rows: The rows to train on.
            corpus: What was trained on.
            steps: Optimizer steps that were taken.
        """
        described: dict[str, Any] = {}
        if isinstance(rows, StreamedRows):
            assert self.stream is not None, "nothing was trained on"
            mine = [(self.stream.drawn, self.stream.report)]
            parts = mine if self._arguments.world_size == 1 else gather_object(mine)
            found = [sum(counts) for counts in zip(*(drawn for drawn, _ in parts), strict=True)]
            described["report"] = _joined(report for _, report in parts).to_dict()
        elif isinstance(rows, MixedRows):
            sampler = self.sampler or make_sampler(rows, self.rows_a_step, self._arguments.seed)
            found = sampler.drawn(steps * self.rows_a_step)
        else:
            return None
        drawn: dict[str, int] = {}
        for name, count in zip(corpus.manifest["settings"]["sources"], found, strict=True):
            drawn[name] = drawn.get(name, 0) + count
        total = max(sum(found), 1)
        return {"rows": drawn, "shares": {name: round(count / total, 6) for name, count in drawn.items()}, **described}

    def _streamed(self, rows: StreamedRows) -> StreamLoader:
        arguments = self._arguments
        # The loop would go on by reading and dropping all batches from the first on.
        arguments.ignore_data_skip = True
        self._add_callback(_EpochOfStream())
        self.stream = StreamLoader(
            rows,
            self._collate,
            Lane(arguments.process_index, arguments.world_size),
            batch_size=arguments.train_batch_size,
            seed=arguments.seed,
            workers=arguments.dataloader_num_workers,
            pin_memory=arguments.dataloader_pin_memory,
            prefetch_factor=arguments.dataloader_prefetch_factor,
            multiprocessing_context=arguments.dataloader_multiprocessing_context,
        )
        return self.stream

    def _position_file(self, folder: Path) -> Path:
        return folder / f"stream_position_{self._arguments.process_index}.json"

    def _load(self, rows: Any, batches: Any, **options: Any) -> DataLoader[Any]:
        arguments = self._arguments
        return DataLoader(
            rows,
            batch_sampler=batches,
            collate_fn=FillingCollator(self._collate, rows),
            num_workers=arguments.dataloader_num_workers,
            pin_memory=arguments.dataloader_pin_memory,
            persistent_workers=arguments.dataloader_persistent_workers,
            multiprocessing_context=arguments.dataloader_multiprocessing_context,
            prefetch_factor=arguments.dataloader_prefetch_factor,
            # Of its own, so that the workers' seeds are not drawn from the stream of dropout.
            generator=torch.Generator(),
            **options,
        )


# Rows in memory: every process reads its share of each batch.


class HasEpochs(Protocol):
    """Changes its order or its content from epoch to epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        ...


class EpochSetter(TrainerCallback):
    """Tells the sampler, and rows that are masked anew every epoch, which epoch begins.

    The loop itself does not reach a sampler that is sharded over ranks.

    Args:
        parts: Whatever has `set_epoch`.
    """

    def __init__(self, *parts: HasEpochs) -> None:
        self._parts = parts

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Set the epoch; a run resumed in the middle of one has a fraction here."""
        for part in self._parts:
            part.set_epoch(int((state.epoch or 0.0) + 1e-6))


class SharedBatches(Sampler[list[int]]):
    """Cuts the rows of a sampler into batches of all processes, and yields the part of one of them.

    Rows go to the processes in turn, so that all have rows of like length. The last batch of an epoch may have fewer
    rows than there are processes: those without one get an empty batch, for which see `FillingCollator`. So no row is
    trained on twice, as it would be if the rest were filled up from the epoch's beginning.

    Args:
        rows: Yields the rows of an epoch.
        batch_size: Rows a process.
        index: Which process, from 0.
        count: Of so many.
        drop_last: Leave out the last batch unless it is full.
    """

    def __init__(self, rows: Sampler[int], batch_size: int, *, index: int, count: int, drop_last: bool) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._index, self._count = index, count

    def __len__(self) -> int:
        whole, rest = divmod(len(self.rows), self.batch_size * self._count)  # type: ignore[arg-type]
        return whole + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        size = self.batch_size * self._count
        for batch in _cut(self.rows, size):
            if len(batch) == size or not self.drop_last:
                yield batch[self._index :: self._count]


def dealt_batches(rows: int, batch_size: int, *, index: int, count: int) -> list[list[int]]:
    """Deal the batches of one process out to several, in turn; all get equally many, the last ones maybe empty ones.

    For measuring: terms that couple the rows of a batch have the value that one process would give them.

    Args:
        rows: How many there are.
        batch_size: Rows of a batch.
        index: Which process, from 0.
        count: Of so many.
    """
    batches = list(_cut(range(rows), batch_size))
    batches += [[]] * (-len(batches) % count)
    return batches[index::count]


class FillingCollator:
    """Makes a batch of some row where there is none, marked as one that counts nothing.

    Processes have to take every step together, also one without rows.

    Args:
        collate: Makes batches of rows.
        rows: Where to take the row from.
    """

    def __init__(self, collate: Collate, rows: Any) -> None:
        self._collate = collate
        self._rows = rows

    def __call__(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Make a batch."""
        return self._collate(rows) if rows else {**self._collate([self._rows[0]]), FILLER: True}


def _cut(rows: Iterable[int], size: int) -> Iterator[list[int]]:
    """Cut rows into lists of a size; the last one may be shorter."""
    iterator = iter(rows)
    while part := list(islice(iterator, size)):
        yield part


# A stream: every worker of every process reads a part of its own.


class _Loaded(NamedTuple):
    """What a worker hands over: a batch and the state behind it, or why there is none."""

    lane: int
    batch: dict[str, torch.Tensor]
    state: dict[str, Any]
    problem: str | None = None


class _LaneBatches(IterableDataset[_Loaded]):
    """The batches of the lane that a worker reads.

    Args:
        rows: The stream.
        collate: Makes a batch of rows.
        lanes: For each worker the lane that it reads.
        count: Lanes of all processes.
        batch_size: Rows of a batch.
        seed: Decides the order.
        states: For each lane the state behind its last batch; lanes without one begin.
    """

    def __init__(
        self,
        rows: StreamedRows,
        collate: Collate,
        lanes: Sequence[int],
        count: int,
        *,
        batch_size: int,
        seed: int,
        states: Mapping[int, dict[str, Any]],
    ) -> None:
        self._rows, self._collate = rows, collate
        self._lanes, self._count = lanes, count
        self._options: dict[str, Any] = {"batch_size": batch_size, "seed": seed}
        self._states = states

    def __iter__(self) -> Iterator[_Loaded]:
        worker = get_worker_info()
        lane = self._lanes[worker.id if worker is not None else 0]
        try:
            batches = self._rows.batches(Lane(lane, self._count), state=self._states.get(lane), **self._options)
            for rows, state in batches:
                yield _Loaded(lane, self._collate(rows), state)
        except CorpusError as error:  # Between processes an exception would lose its one line.
            yield _Loaded(lane, {}, {}, str(error))


class StreamLoader:
    """Loads the batches of a stream, and knows the position behind the last one that was taken.

    Every worker of every process reads a lane of its own; batches are taken from the lanes of a process in turn. What
    workers have made ahead does not count: the position is that of the trainer.

    Args:
        rows: The stream.
        collate: Makes a batch of rows.
        lane: Which process this is, of how many.
        batch_size: Rows of a batch.
        seed: Decides the order.
        workers: Worker processes; with 0 this process reads by itself.
        **options: Of `torch.utils.data.DataLoader`, for workers.
    """

    def __init__(
        self,
        rows: StreamedRows,
        collate: Collate,
        lane: Lane,
        *,
        batch_size: int,
        seed: int,
        workers: int = 0,
        **options: Any,
    ) -> None:
        self.rows = rows
        self._collate = collate
        self._layout = {"processes": lane.count, "workers": workers, "batch_size": batch_size}
        self._lanes = [lane.index * max(workers, 1) + worker for worker in range(max(workers, 1))]
        self._seed = seed
        self._options = options if workers else {key: options[key] for key in ("pin_memory",) if key in options}
        self._states: dict[int, dict[str, Any]] = {}
        self._taken = 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        turn = self._taken % len(self._lanes)
        data = _LaneBatches(
            self.rows,
            self._collate,
            self._lanes[turn:] + self._lanes[:turn],
            self._layout["processes"] * len(self._lanes),
            batch_size=self._layout["batch_size"],
            seed=self._seed,
            states=self._states,
        )
        # With a generator of its own, drawing the workers' seeds leaves the one of dropout where it is.
        loader: DataLoader[_Loaded] = DataLoader(
            data,
            batch_size=None,
            num_workers=self._layout["workers"],
            collate_fn=_as_it_is,
            generator=torch.Generator(),
            **self._options,
        )
        with single_threaded_tokenizers(self._layout["workers"] > 0):
            loaded = iter(loader)
        for item in loaded:
            if item.problem is not None:
                raise CorpusError(item.problem)
            self._states[item.lane] = item.state
            self._taken += 1
            yield item.batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position, as plain JSON values."""
        states = {str(lane): state for lane, state in sorted(self._states.items())}
        return {"layout": self._layout, "taken": self._taken, "lanes": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position.

        Raises:
            TrainingError: if it is of another number of processes, workers or rows a batch.
        """
        if state["layout"] != self._layout:
            before, now = (", ".join(f"{k} {v}" for k, v in found.items()) for found in (state["layout"], self._layout))
            raise TrainingError(
                f"The stream was read with {before}, and now it would be with {now}, which meets other batches: resume "
                "with the same, or start again with --overwrite."
            )
        self._taken = state["taken"]
        self._states = {int(lane): behind for lane, behind in state["lanes"].items()}

    @property
    def drawn(self) -> list[int]:
        """Number of rows of each source that this process has taken."""
        drawn = [state["drawn"] for state in self._states.values()] or [[0] * len(self.rows.corpus.sources)]
        return [sum(counts) for counts in zip(*drawn, strict=True)]

    @property
    def report(self) -> SourceReport:
        """What this process's lanes passed over or repaired so far."""
        return _joined(SourceReport.from_dict(state["report"]) for state in self._states.values())


class _EpochOfStream(TrainerCallback):
    """Lets the epoch be the part of the steps that are done, also in a resumed run."""

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Set the epoch."""
        state.epoch = state.global_step / state.max_steps


def _joined(reports: Iterable[SourceReport]) -> SourceReport:
    whole = SourceReport()
    for report in reports:
        whole.merge(report)
    return whole


def _as_it_is(loaded: Any) -> Any:
    return loaded
