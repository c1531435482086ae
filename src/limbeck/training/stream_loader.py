"""`StreamLoader`: the batches of a stream, of which every worker of every process reads another part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from limbeck.core import process_pools, workers
from limbeck.corpus import (
    Lane,
)
from limbeck.errors import CorpusError, TrainingError
from limbeck.training.rows import StreamedRows

Collate = Callable[[Sequence[Any]], dict[str, torch.Tensor]]


class _Loaded(NamedTuple):
    """What a worker hands over: a batch and the state behind it, or why there is none."""

    lane: int
    batch: dict[str, torch.Tensor]
    state: dict[str, Any]
    problem: str | None = None


class _LaneBatches(IterableDataset[_Loaded]):
    """The batches of the lane that a worker reads.

    Args:
        loader: Of the process.
        lanes: For each worker the lane that it reads.
    """

    def __init__(self, loader: StreamLoader, lanes: Sequence[int]) -> None:
        self._loader, self._lanes = loader, lanes

    def __iter__(self) -> Iterator[_Loaded]:
        worker, loader = get_worker_info(), self._loader
        lane = self._lanes[worker.id if worker is not None else 0]
        options: dict[str, Any] = {"batch_size": loader.batch_size, "seed": loader.seed}
        part, state = Lane(lane, loader.lane.count * len(self._lanes)), loader.states.get(lane)
        try:
            for blocks, behind in loader.rows.corpus.batches(part, state=state, **options):
                yield _Loaded(lane, loader.collate([loader.rows.make(block) for block in blocks]), behind)
        except CorpusError as error:  # Between processes an exception would lose its one line.
            yield _Loaded(lane, {}, {}, str(error))


@dataclass
class StreamLoader:
    """Loads the batches of a stream, and knows the position behind the last one that was taken.

    Every worker of every process reads another lane; batches are taken from the lanes of a process round robin. What
    workers have made ahead does not count: the position is that of the trainer.

    Args:
        rows: The stream.
        collate: Makes a batch of rows.
        lane: Which process this is, of how many.
        batch_size: Rows of a batch.
        seed: Decides the order.
        options: Of `torch.utils.data.DataLoader`; without workers this process reads by itself.
    """

    rows: StreamedRows
    collate: Collate
    lane: Lane
    batch_size: int
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._workers: int = self.options.get("num_workers", 0)
        self._layout = {"processes": self.lane.count, "workers": self._workers, "batch_size": self.batch_size}
        lanes = max(self._workers, 1)
        self._lanes = list(range(self.lane.index * lanes, (self.lane.index + 1) * lanes))
        self.states: dict[int, dict[str, Any]] = {}
        self._taken = 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        turn = self._taken % len(self._lanes)
        lanes = self._lanes[turn:] + self._lanes[:turn]
        # With a separate generator, drawing the workers' seeds leaves the one of dropout where it is.
        loader: DataLoader[_Loaded] = DataLoader(
            _LaneBatches(self, lanes),
            batch_size=None,
            collate_fn=_as_it_is,
            generator=torch.Generator(),
            worker_init_fn=begin_worker,
            **self.options,
        )
        with process_pools.single_threaded_tokenizers(self._workers > 0):
            loaded = iter(loader)
        for item in loaded:
            if item.problem is not None:
                raise CorpusError(item.problem)
            self.states[item.lane] = item.state
            self._taken += 1
            yield item.batch

    def begin_behind(self, earlier: StreamLoader) -> None:
        """Begin where the present window of another stream of the same sources began, cut otherwise."""
        for lane, state in earlier.states.items():
            kept_names = ("pass", "cursor", "fruitful")
            sources = [{name: source[name] for name in kept_names} for source in state["sources"]]
            begun = {"window": state["window"], "sources": sources, "taken": 0}
            self.states[lane] = {**begun, "drawn": [0] * len(sources), "report": {}}

    def state_dict(self) -> dict[str, Any]:
        """Return the position, as plain JSON values."""
        states = {str(lane): state for lane, state in sorted(self.states.items())}
        return {"layout": self._layout, "taken": self._taken, "lanes": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position.

        Raises:
            TrainingError: if it is of another number of processes, workers or rows a batch.
        """
        if state["layout"] != self._layout:
            before, now = (", ".join(f"{k} {v}" for k, v in found.items()) for found in (state["layout"], self._layout))
            raise TrainingError(
                f"The stream was read with {before} and would now be read with {now}, which gives other batches: "
                "resume with the same, or start again with --overwrite."
            )
        self._taken = state["taken"]
        self.states = {int(lane): behind for lane, behind in state["lanes"].items()}


def begin_worker(_worker: int) -> None:
    """Let a worker process of a data loader end with its parent."""
    workers.end_with_parent()  # PyTorch handles the signals of its loading processes.


def _as_it_is(loaded: Any) -> Any:
    return loaded
