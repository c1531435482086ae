"""`StreamLoader`: the batches of a stream, and the position from which a resumed run goes on.

A *lane* is one of the parts into which a stream is divided: each worker of each process reads one. The *state* of a
lane says how far it has been read; it comes with every batch. The *position* of a process are the states of its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from limbeck.core import process_pools, workers
from limbeck.corpus import Lane
from limbeck.errors import CorpusError, TrainingError
from limbeck.training.rows import StreamedRows

Collate = Callable[[Sequence[Any]], dict[str, torch.Tensor]]


class _Loaded(NamedTuple):
    """A batch from a worker, with the state of its lane behind the batch; or the problem that ended the reading."""

    lane: int
    batch: dict[str, torch.Tensor]
    state: dict[str, Any]
    problem: str | None = None


@dataclass
class StreamLoader:
    """Loads the batches of a stream, and knows the position behind the last batch that was taken.

    The batches of a process come from its lanes in turn. Workers make batches ahead; these do not move the position
    until the trainer takes them.

    Args:
        rows: The stream.
        collate: Makes a batch of rows.
        lane: The index of this process, and the number of processes.
        batch_size: Rows of a batch.
        seed: Decides the order.
        options: Options of `torch.utils.data.DataLoader`; without workers this process reads by itself.

    Attributes:
        states: For each lane, by index, its state behind the last batch that was taken; see `StreamBatches`.
    """

    rows: StreamedRows
    collate: Collate
    lane: Lane
    batch_size: int
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states: dict[int, dict[str, Any]] = {}
        self._workers: int = self.options.get("num_workers", 0)
        self._layout = {"processes": self.lane.count, "workers": self._workers, "batch_size": self.batch_size}
        # Batches that were taken, over all lanes of this process.
        self._taken = 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yield batches from the lanes in turn, and note the state of each lane behind its batch."""
        # PyTorch takes the first batch from the first worker, so the lane whose turn it is has to be the first.
        lanes = self._lanes()
        turn = self._taken % len(lanes)
        loader: DataLoader[_Loaded] = DataLoader(
            _LaneBatches(self, lanes[turn:] + lanes[:turn]),
            batch_size=None,
            collate_fn=_unchanged,
            # A generator of its own, so that the workers' seeds are not drawn from the random stream of dropout.
            generator=torch.Generator(),
            worker_init_fn=begin_worker,
            **self.options,
        )
        # `iter` starts the worker processes.
        with process_pools.single_threaded_tokenizers(self._workers > 0):
            iterator = iter(loader)
        for loaded in iterator:
            if loaded.problem is not None:
                raise CorpusError(loaded.problem)
            self.states[loaded.lane] = loaded.state
            self._taken += 1
            yield loaded.batch

    def _lanes(self) -> list[int]:
        """Return the lanes of this process: one for each worker, or one without workers."""
        count = max(self._workers, 1)
        first = self.lane.index * count
        return list(range(first, first + count))

    def begin_behind(self, earlier: StreamLoader) -> None:
        """Begin where the last window of another stream began: the text that it read and shuffled together last.

        Args:
            earlier: A stream of the same sources, whose text is cut to another length.
        """
        for lane, state in earlier.states.items():
            # A state has the position of each source at the beginning of the window, and counts of what was read since.
            sources = [_position_fields(source) for source in state["sources"]]
            self.states[lane] = {
                "window": state["window"],
                "sources": sources,
                # The counts begin anew.
                "taken": 0,
                "drawn": [0] * len(sources),
                "report": {},
            }

    def state_dict(self) -> dict[str, Any]:
        """Return the position, as plain JSON values."""
        states = {str(lane): state for lane, state in sorted(self.states.items())}
        return {"layout": self._layout, "taken": self._taken, "lanes": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position.

        Args:
            state: Returned by `state_dict`.

        Raises:
            TrainingError: if it is of another number of processes, workers or rows a batch.
        """
        if state["layout"] != self._layout:
            raise TrainingError(
                f"The stream was read with {_describe_layout(state['layout'])} and would now be read with "
                f"{_describe_layout(self._layout)}, which gives other batches: resume with the earlier numbers, or "
                "start again with --overwrite."
            )
        self._taken = state["taken"]
        self.states = {int(lane): state_of_lane for lane, state_of_lane in state["lanes"].items()}


def _position_fields(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a source's state that say how far its text has been read.

    They are the number of the pass over the text, the place in it, and whether this pass has given a block yet.
    """
    return {name: source[name] for name in ("pass", "cursor", "fruitful")}


class _LaneBatches(IterableDataset[_Loaded]):
    """The batches of the lane that the present worker reads.

    Args:
        loader: The loader of the process.
        lanes: The lane of each worker.
    """

    def __init__(self, loader: StreamLoader, lanes: Sequence[int]) -> None:
        self._loader = loader
        self._lanes = lanes

    def __iter__(self) -> Iterator[_Loaded]:
        """Yield the batches of the lane that this process reads, each with the state of the lane behind it."""
        loader = self._loader
        worker = get_worker_info()
        index = self._lanes[0] if worker is None else self._lanes[worker.id]
        lane = Lane(index, loader.lane.count * len(self._lanes))
        batches = loader.rows.corpus.batches(
            lane, batch_size=loader.batch_size, seed=loader.seed, state=loader.states.get(index)
        )
        try:
            for blocks, state in batches:
                yield _Loaded(index, loader.collate([loader.rows.make(block) for block in blocks]), state)
        # An exception of a worker would arrive as a long traceback. The message is sent as data, and raised there.
        except CorpusError as error:
            yield _Loaded(index, batch={}, state={}, problem=str(error))


def _describe_layout(layout: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in layout.items())


def begin_worker(_worker: int) -> None:
    """Let a worker process of a data loader end with its parent."""
    workers.end_with_parent()  # PyTorch handles the signals of its loading processes.


def _unchanged(loaded: Any) -> Any:
    """Return a batch as it is: `_LaneBatches` gives whole batches, which a data loader need not collate."""
    return loaded
