"""Training on a stream: its batches, loaded by worker processes, and its position, saved with every checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate.utils import gather_object
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.core.files import atomic_text, read_json
from limbeck.core.workers import single_threaded_tokenizers
from limbeck.corpus import Corpus, Lane, SourceReport
from limbeck.errors import CorpusError, TrainingError
from limbeck.training.base_trainer import ShardedTrainer
from limbeck.training.data import MixedRows, StreamedRows, make_sampler

Collate = Callable[[Sequence[Mapping[str, Any]]], dict[str, torch.Tensor]]


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


class StreamingTrainer(ShardedTrainer):
    """A trainer that also takes `StreamedRows`: their position is saved and taken up with the random streams.

    The loop's own way to resume, reading and dropping all batches from the first on, is left aside for them.
    """

    stream: StreamLoader | None = None

    def get_train_dataloader(self) -> Any:
        """Load the rows to train on; a stream needs no sharding over processes, for each reads its own part."""
        rows = self.train_dataset
        if not isinstance(rows, StreamedRows):
            return super().get_train_dataloader()
        arguments = self.args
        arguments.ignore_data_skip = True
        self.add_callback(_EpochOfStream())
        self.stream = StreamLoader(
            rows,
            self.data_collator,
            Lane(arguments.process_index, arguments.world_size),
            batch_size=self._train_batch_size,
            seed=arguments.seed,
            workers=arguments.dataloader_num_workers,
            pin_memory=arguments.dataloader_pin_memory,
            prefetch_factor=arguments.dataloader_prefetch_factor,
            multiprocessing_context=arguments.dataloader_multiprocessing_context,
        )
        return self.stream

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self.stream is not None:
            atomic_text(self._position_file(output_dir), json.dumps(self.stream.state_dict()))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if self.stream is not None and checkpoint is not None:
            self.stream.load_state_dict(json.loads(self._position_file(checkpoint).read_text(encoding="utf-8")))

    def _position_file(self, checkpoint: str) -> Path:
        return Path(checkpoint) / f"stream_position_{self.args.process_index}.json"

    def take_up_stream(self, checkpoint: Path) -> None:
        """Take the position of a stream from a checkpoint, without reading on."""
        if isinstance(self.train_dataset, StreamedRows):
            self.get_train_dataloader().load_state_dict(read_json(self._position_file(str(checkpoint))))

    def describe_drawn(self, corpus: Corpus) -> dict[str, Any] | None:
        """Return how many rows of each source were trained on, over all processes; None where they are not mixed.

        Of a stream also what was passed over or repaired; a lane that reads along with others counts what it met.

        Args:
            corpus: What was trained on.
        """
        rows = self.train_dataset
        described: dict[str, Any] = {}
        if isinstance(rows, StreamedRows):
            assert self.stream is not None, "nothing was trained on"
            mine = [(self.stream.drawn, self.stream.report)]
            parts = mine if self.args.world_size == 1 else gather_object(mine)
            found = [sum(counts) for counts in zip(*(drawn for drawn, _ in parts), strict=True)]
            described["report"] = _joined(report for _, report in parts).to_dict()
        elif isinstance(rows, MixedRows):
            sampler = self.train_sampler or make_sampler(rows, self.rows_a_step, self.args.seed)
            found = sampler.drawn(self.state.global_step * self.rows_a_step)
        else:
            return None
        drawn: dict[str, int] = {}
        for name, count in zip(corpus.manifest["settings"]["sources"], found, strict=True):
            drawn[name] = drawn.get(name, 0) + count
        total = max(sum(found), 1)
        return {"rows": drawn, "shares": {name: round(count / total, 6) for name, count in drawn.items()}, **described}


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
