"""The rows that a stage reads and the batches made of them.

Rows are blocks, labelled rows or a stream, replaced and masked as the stage says. Every process reads its part of the
batches; of a stream the position is known, to go on from.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import seed_worker

from limbeck import corpus as texts
from limbeck.core import process_pools, ranks, records, workers
from limbeck.core.blocks import counted
from limbeck.core.files import atomic_text
from limbeck.corpus import (
    Corpus,
    LabelledCorpus,
    Lane,
    LengthSchedule,
    MaskedTokens,
    ReplacedTokens,
    RowMix,
    SourceReport,
    streaming,
)
from limbeck.corpus.batches import group_by_length
from limbeck.errors import CorpusError, TrainingError
from limbeck.training.module import FILLER

AnyCorpus = Corpus | LabelledCorpus
_HELD_OUT_ROWS = 512
_LOADER_OPTIONS = ("num_workers", "pin_memory", "prefetch_factor", "multiprocessing_context")


class StreamedRows(Dataset[dict[str, Any]]):
    """The rows of a stream, made of its blocks; as a data set, a few rows of its beginning to see beforehand.

    Args:
        corpus: The stream.
        replacing: Replaces tokens of its beginning, and of any row; or None.
        masking: Masks tokens likewise, or None.
    """

    def __init__(
        self, corpus: streaming.StreamedCorpus, replacing: ReplacedTokens | None, masking: MaskedTokens | None
    ) -> None:
        self.corpus = corpus
        self._replacing = replacing
        self._masking = masking
        self._beginning: Any = masking or replacing or corpus.train

    def __len__(self) -> int:
        return len(self._beginning)

    def __getitem__(self, key: Any) -> Any:
        return self._beginning[key]

    def make(self, block: streaming.Block) -> dict[str, Any]:
        """Make the row of a block, its tokens replaced and masked."""
        row: dict[str, Any] = {"input_ids": block.ids, "length": len(block.ids), **block.columns}
        if self._replacing is not None:
            row = self._replacing.replace(row)
        return row if self._masking is None else self._masking.mask(row, block.number)


class RowsByLength(Dataset[dict[str, Any]]):
    """The rows of a stage at several lengths, trained on one after the other; as a data set, those of the first.

    Args:
        parts: The rows of each length.
        mixes: Which rows an epoch of each has; None for every row once.
        schedule: How long each is trained on.
    """

    def __init__(self, parts: Sequence[Any], mixes: Sequence[RowMix | None], schedule: LengthSchedule) -> None:
        self.parts, self.mixes, self.schedule = parts, mixes, schedule

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, key: Any) -> Any:
        return self.parts[0][key]


def training_rows(
    corpus: AnyCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    replace_tokens: float,
    mask_tokens: float,
    seed: int,
    documents: int | None = None,
) -> Any:
    """Return the rows to train on.

    Args:
        corpus: The corpus; of a stream the result is `StreamedRows`.
        tokenizer: Its tokenizer.
        replace_tokens: Share of tokens replaced by random words.
        mask_tokens: Share of tokens masked, of those that are left; they become the labels.
        seed: Decides what is replaced and masked.
        documents: Most documents of a query that are read together; None for rows that are read one by one.
    """
    rows: Any = corpus.train
    replacing = masking = None
    if replace_tokens > 0:
        rows = replacing = ReplacedTokens(rows, replace_tokens, **_drawn_from(tokenizer, seed))
    if mask_tokens > 0:
        rows = masking = _masked(rows, tokenizer, mask_tokens, seed)
    if isinstance(corpus, streaming.StreamedCorpus):
        return StreamedRows(corpus, replacing, masking)
    return rows if documents is None else texts.GroupedRows(rows, corpus.train, documents)


def held_out_rows(
    corpus: AnyCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    mask_tokens: float,
    seed: int,
    documents: int | None = None,
) -> Any:
    """Return up to 512 held-out rows: never replaced, and always masked alike; arguments as of `training_rows`."""
    rows = corpus.held_out.select(range(min(_HELD_OUT_ROWS, len(corpus.held_out))))
    if documents is not None:
        return texts.GroupedRows(rows, rows, documents)
    return rows if mask_tokens == 0 else _masked(rows, tokenizer, mask_tokens, seed)


def _masked(rows: Any, tokenizer: PreTrainedTokenizerBase, share: float, seed: int) -> MaskedTokens:
    return MaskedTokens(rows, share, mask_id=texts.mask_id_of(tokenizer), **_drawn_from(tokenizer, seed))


def _drawn_from(tokenizer: PreTrainedTokenizerBase, seed: int) -> dict[str, Any]:
    return {"words": texts.word_ids(tokenizer), "special": tokenizer.all_special_ids, "seed": seed}


# Sampling blocks so that those of a batch have nearly the same length, in an order that a resumed run repeats.


class LengthGroupedSampler(Sampler[int]):
    """Yields every index once an epoch, or those that a mix draws, batch by batch of similar length, in random order.

    Unlike `transformers.trainer_pt_utils.LengthGroupedSampler` the order is a function of seed and epoch alone, so a
    run resumed in its second epoch meets the rows that it would have met.

    Args:
        lengths: Length of every row in tokens.
        batch_size: Rows that are padded together, over all ranks.
        seed: Seed of the order.
        mix: Which rows an epoch has; without it, every row once.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int, mix: RowMix | None = None) -> None:
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._batch_size = batch_size
        self._seed = seed
        self._mix = mix
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        for batch in self._batches(self._epoch):
            yield from batch.tolist()

    def drawn(self, rows: Sequence[int]) -> list[int]:
        """Return how many of the rows that were trained on are of each source of the mix.

        Args:
            rows: Of each epoch how many of its rows were trained on, from its first one on.
        """
        assert self._mix is not None
        counts = []
        for epoch, count in enumerate(rows):
            if count == len(self):
                counts.append(self._mix.counts(epoch))
            else:
                begun = np.concatenate([*self._batches(epoch), np.empty(0, np.int64)])[:count]
                counts.append(self._mix.sources(begun))
        return np.sum(counts, axis=0).tolist()

    def _batches(self, epoch: int) -> list[NDArray[Any]]:
        generator = np.random.default_rng([self._seed, epoch])
        if self._mix is None:
            order = generator.permutation(len(self._lengths))
        else:
            order = generator.permutation(self._mix.draw(epoch))
        return group_by_length(order, self._lengths, self._batch_size, generator)


def grouped_padding_share(lengths: Sequence[int] | texts.GroupedRows, batch_size: int) -> float:
    """Share of positions that are padding when batches are drawn by `LengthGroupedSampler`; 0 to 1."""
    if isinstance(lengths, texts.GroupedRows):
        return lengths.padding_share([*LengthGroupedSampler(lengths["length"], batch_size, seed=0)], batch_size)
    drawn = LengthGroupedSampler(lengths, batch_size, seed=0)
    return texts.padding_share([lengths[index] for index in drawn], batch_size)


# Loading the batches of a stage, of which every process reads its part.


Collate = Callable[[Sequence[Any]], dict[str, torch.Tensor]]


class Loader(TrainerCallback):
    """Loads the rows of a stage: its steps have the same rows with any number of processes and micro-batches.

    A step is made of a number of rows: 8 in one process are 4 in two, or 2 micro-batches of 4. Batches stay on the
    host; `DistillationTrainer` moves them. A stream needs no sharding over processes, each reads its own part; its
    position is saved with every checkpoint. As a callback it follows the epochs.

    Args:
        arguments: Of the training.
        collate: Makes batches of rows.
        drop_last: Whether an epoch ends with its last full batch.
        mix: Which rows an epoch has; without it, every row once.
        whole_steps: Fill the last step of an epoch with empty micro-batches.
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
        """Load the rows to train on, those of this process.

        Raises:
            TrainingError: if they make no batch.
        """
        arguments = self._arguments
        if isinstance(rows, RowsByLength):
            fixed: dict[str, Any] = {"drop_last": self.drop_last, "whole_steps": True}
            parts = [Loader(arguments, self._collate, mix=mix, **fixed) for mix in rows.mixes]
            self.by_length = LoaderByLength(parts, rows, arguments.gradient_accumulation_steps, arguments.max_steps)
            # As of a stream: it goes on by itself from the step that it is told.
            arguments.ignore_data_skip, arguments.max_steps = True, self.by_length.ends[-1]
            return self.by_length
        if isinstance(rows, StreamedRows):
            # The loop would go on by reading and dropping all batches from the first on.
            arguments.ignore_data_skip = True
            size, seed = arguments.train_batch_size, arguments.seed
            self.stream = StreamLoader(rows, self._collate, self._lane, size, seed, self._options)
            return self.stream
        multiple = arguments.gradient_accumulation_steps if self._whole_steps else 1
        sizes: dict[str, Any] = {"drop_last": self.drop_last, "multiple": multiple}
        batches = SharedBatches(self.sample(rows), arguments.train_batch_size, self._lane, **sizes)
        if len(batches) == 0:
            size = arguments.train_batch_size * arguments.world_size
            problem = f"The stage would train no step: it has {counted(len(rows), 'row')}, and a batch takes {size}"
            way_out = "lower per_device_train_batch_size or leave out dataloader_drop_last."
            raise ranks.raised_on_all_ranks(TrainingError(f"{problem}; {way_out}"))
        seeded = partial(_begin_seeded, num_workers=arguments.dataloader_num_workers, rank=arguments.process_index)
        return self._load(rows, batches, seeded)

    def sample(self, rows: Any) -> Sampler[int]:
        """Sample rows of similar length together; see `LengthGroupedSampler`."""
        self.sampler = LengthGroupedSampler(rows["length"][:], self.rows_a_step, self._arguments.seed, self._mix)
        return self.sampler

    def held_out(self, rows: Any) -> DataLoader[Any]:
        """Load the rows to measure on, those of this process."""
        return self._load(rows, dealt_batches(len(rows), self._arguments.eval_batch_size, self._lane))

    def save_position(self, folder: Path) -> None:
        """Write the position of streams beside a checkpoint's other files; nothing for other rows."""
        if self._streams:
            states = [stream.state_dict() for stream in self._streams]
            atomic_text(self._position_file(folder), json.dumps(states if self.by_length else states[0]))

    def load_position(self, folder: Path) -> None:
        """Go to the position that `save_position` wrote.

        Raises:
            TrainingError: if it is of another number of processes, workers or rows a batch.
        """
        if self._streams:
            states = json.loads(self._position_file(folder).read_text(encoding="utf-8"))
            for stream, state in zip(self._streams, states if self.by_length else [states], strict=True):
                stream.load_state_dict(state)

    def lengths_until(self, step: int) -> list[tuple[int, int]]:
        """Return each length of a schedule with the steps that were taken at it; empty without a schedule.

        Args:
            step: Optimizer steps that were taken.
        """
        by_length = self.by_length
        return (
            [] if by_length is None else list(zip(by_length.rows.schedule.lengths, by_length.done(step), strict=True))
        )

    def number_of_length(self, step: int) -> int:
        """Return which of the lengths the step behind so many reads; 0 without a schedule."""
        return 0 if self.by_length is None else bisect_right(self.by_length.ends, step)

    def epoch_of(self, step: int) -> int | None:
        """Return the epoch that the step behind so many is in, see `LoaderByLength.epoch_of`; None without a schedule.

        Without one it is the training loop that counts epochs.
        """
        return None if self.by_length is None else self.by_length.epoch_of(step)

    def work_until(self, step: int) -> float:
        """Return how much of a stage's work is done, in steps; of a schedule in steps times their lengths."""
        return sum(length * done for length, done in self.lengths_until(step)) or step

    def on_epoch_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """Tell the sampler, and rows that are masked anew every epoch, which epoch begins.

        The loop itself reaches no sampler that is sharded over ranks. A run resumed in the middle of an epoch has a
        fraction here.
        """
        if self.by_length is not None:
            self.by_length.step = state.global_step
        parts: tuple[Any, Any] = self.sampler, getattr(train_dataloader, "dataset", None)
        for part in parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(int((state.epoch or 0.0) + 1e-6))

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Let the epoch of a stream or schedule be the part of the steps that are done, also in a resumed run."""
        if self.stream is not None or self.by_length is not None:
            state.epoch = state.global_step / state.max_steps

    def describe_drawn(self, corpus: Corpus, steps: int) -> records.Drawn | None:
        """Return how many rows of each source were trained on, over all processes; None where they are not mixed.

        Of a stream also the skipped and repaired text; every lane counts its own.

        Args:
            corpus: What was trained on.
            steps: Optimizer steps that were taken.
        """
        described: dict[str, Any] = {}
        parts = [(self, steps)] if self.by_length is None else self.by_length.parts_until(steps)
        if self._streams:
            gathered = [states for stream in self._streams for states in ranks.gather(stream.states)]
            states = [state for part in gathered for state in part.values()]
            found = np.sum([state["drawn"] for state in states], axis=0).tolist()
            report = SourceReport()
            for state in states:
                report.merge(SourceReport.from_dict(state["report"]))
            described["report"] = report.to_dict()
        elif parts[0][0]._mix is not None:
            counts = [
                part.sampler.drawn(part._rows_of_epochs(done)) for part, done in parts if part.sampler is not None
            ]
            found = np.sum(counts, axis=0).tolist()
        else:
            return None
        drawn: dict[str, int] = {}
        for name, count in zip(corpus.titles, found, strict=True):
            drawn[name] = drawn.get(name, 0) + count
        shares = {name: round(count / max(sum(found), 1), 6) for name, count in drawn.items()}
        return records.Drawn.read({"rows": drawn, "shares": shares, **described})

    def _rows_of_epochs(self, steps: int) -> list[int]:
        """Return how many rows so many steps read in each epoch: its last step may have fewer than the others."""
        assert self.sampler is not None
        rows = len(self.sampler)
        if self.drop_last:
            rows -= rows % (self._arguments.train_batch_size * self._arguments.world_size)
        epochs, rest = divmod(steps, -(-rows // self.rows_a_step))
        return [*[rows] * epochs, min(rest * self.rows_a_step, rows)]

    @property
    def _streams(self) -> list[StreamLoader]:
        """The streams that are read, one for each length."""
        parts = [self] if self.by_length is None else self.by_length.loaders
        return [part.stream for part in parts if part.stream is not None]

    def _position_file(self, folder: Path) -> Path:
        return folder / f"stream_position_{self._arguments.process_index}.json"

    def _load(self, rows: Any, batches: Any, begin: Callable[[int], None] | None = None) -> DataLoader[Any]:
        return DataLoader(
            rows,
            batch_sampler=batches,
            collate_fn=partial(_collate_or_fill, self._collate, rows),
            persistent_workers=self._arguments.dataloader_persistent_workers,
            # A separate one, so that the workers' seeds are not drawn from the stream of dropout.
            generator=torch.Generator(),
            worker_init_fn=begin or _begin,
            **self._options,
        )


class LoaderByLength:
    """Loads the rows of several lengths one after the other; the length changes between two optimizer steps.

    An epoch of a length ends with a whole step. A stream goes on at the next length where its last window began. Masks
    are drawn for the epochs of all lengths together, so that a block that is the same at both is masked anew.

    Args:
        loaders: Of each length.
        rows: The rows.
        micro_batches: Of a step.
        max_steps: Of the training; not above 0: as many as the epochs have.

    Attributes:
        ends: The last step of each length.
        step: The step that an iteration begins behind.

    Raises:
        TrainingError: if a length would have no batch or no step.
    """

    def __init__(self, loaders: Sequence[Loader], rows: RowsByLength, micro_batches: int, max_steps: int) -> None:
        self.loaders, self.rows, self.step = loaders, rows, 0
        self._micro_batches = micro_batches
        self._loaded: list[Any] = [loader.training(part) for loader, part in zip(loaders, rows.parts, strict=True)]
        self._steps = [
            0 if isinstance(loaded, StreamLoader) else len(loaded.batch_sampler) // micro_batches
            for loaded in self._loaded
        ]
        try:
            self.ends = rows.schedule.ends(max_steps, self._steps)
        except CorpusError as error:
            raise ranks.raised_on_all_ranks(TrainingError(str(error))) from None

    def done(self, step: int) -> list[int]:
        """Return the steps that were taken at each length, of so many in all."""
        return [max(min(step, end) - begin, 0) for begin, end in pairwise([0, *self.ends])]

    def parts_until(self, step: int) -> list[tuple[Loader, int]]:
        """Return the loader of each length with the steps that were taken at it."""
        return list(zip(self.loaders, self.done(step), strict=True))

    def epoch_of(self, step: int) -> int:
        """Return the epoch that the step behind so many is in, from 0: those of all lengths together; 0 of a stream."""
        part = min(bisect_right(self.ends, step), len(self.ends) - 1)
        if not self._steps[part]:
            return 0
        begun = zip(self.done(self.ends[-1])[:part], self._steps, strict=False)
        return sum(-(-steps // an_epoch) for steps, an_epoch in begun) + self.done(step)[part] // self._steps[part]

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for part, (done, steps) in enumerate(zip(self.done(self.step), self.done(self.ends[-1]), strict=True)):
            if isinstance(self._loaded[part], StreamLoader):
                yield from self._read_stream(part, done, steps)
            else:
                yield from self._read_epochs(part, done, steps)

    def _read_stream(self, part: int, done: int, steps: int) -> Iterator[dict[str, torch.Tensor]]:
        stream = self._loaded[part]
        if part > 0 and done == 0:
            stream.begin_behind(self._loaded[part - 1])
        if done < steps:
            yield from islice(stream, (steps - done) * self._micro_batches)

    def _read_epochs(self, part: int, done: int, steps: int) -> Iterator[dict[str, torch.Tensor]]:
        """Read the steps of a length from one of them on."""
        rows, loaded, sampler = self.rows.parts[part], self._loaded[part], self.loaders[part].sampler
        assert sampler is not None
        while done < steps:
            epoch, taken = divmod(done, self._steps[part])
            count = min(self._steps[part] - taken, steps - done)
            sampler.set_epoch(epoch)
            if hasattr(rows, "set_epoch"):
                rows.set_epoch(self.epoch_of(self.ends[part] - steps + done))
            loaded.batch_sampler.skip = taken * self._micro_batches
            yield from islice(loaded, count * self._micro_batches)
            done += count


# Rows in memory: every process reads its share of each batch.


class SharedBatches(Sampler[list[int]]):
    """Cuts the rows of a sampler into batches of all processes, and yields the part of one of them.

    Rows are dealt to the processes one by one, so that all have rows of like length. The last batch of an epoch may
    have fewer rows than there are processes: those without one get an empty batch, for which see `_collate_or_fill`. So
    no row is trained on twice, as it would be if the rest were filled up from the epoch's beginning.

    Args:
        rows: Yields the rows of an epoch.
        batch_size: Rows a process.
        lane: Which process, of how many.
        drop_last: Leave out the last batch unless it is full.
        multiple: The batches are as many as a multiple of this; the last ones are empty.

    Attributes:
        skip: Batches to leave out at the beginning of an epoch.
    """

    def __init__(self, rows: Sampler[int], batch_size: int, lane: Lane, *, drop_last: bool, multiple: int = 1) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.skip = 0
        self._lane = lane
        self._multiple = multiple

    def __len__(self) -> int:
        whole, rest = divmod(len(self.rows), self.batch_size * self._lane.count)  # type: ignore[arg-type]
        batches = whole + bool(rest and not self.drop_last)
        return batches + -batches % self._multiple

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self._whole_epoch(), self.skip, None)

    def _whole_epoch(self) -> Iterator[list[int]]:
        size, count = self.batch_size * self._lane.count, 0
        for batch in _cut(self.rows, size):
            if len(batch) == size or not self.drop_last:
                count += 1
                yield batch[self._lane.index :: self._lane.count]
        yield from [[] for _ in range(-count % self._multiple)]


def dealt_batches(rows: int, batch_size: int, lane: Lane) -> list[list[int]]:
    """Deal the batches of one process out to several, one by one; all get equally many, the last ones maybe empty ones.

    For measuring: terms that couple the rows of a batch have the value that one process would give them.

    Args:
        rows: How many there are.
        batch_size: Rows of a batch.
        lane: Which process, of how many.
    """
    batches = list(_cut(range(rows), batch_size))
    batches += [[]] * (-len(batches) % lane.count)
    return batches[lane.index :: lane.count]


def _collate_or_fill(collate: Collate, rows: Any, batch: Sequence[Any]) -> dict[str, Any]:
    """Make a batch; an empty one is the first row, marked to count nothing, since processes step together."""
    return collate(batch) if batch else {**collate([rows[0]]), FILLER: True}


def _cut(rows: Iterable[int], size: int) -> Iterator[list[int]]:
    """Cut rows into lists of a size; the last one may be shorter."""
    iterator = iter(rows)
    while part := list(islice(iterator, size)):
        yield part


# A stream: every worker of every process reads another part.


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
            worker_init_fn=_begin,
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
            kept = ("pass", "cursor", "fruitful")
            sources = [{name: source[name] for name in kept} for source in state["sources"]]
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


def _begin(_worker: int) -> None:
    workers.end_with_parent()  # PyTorch handles the signals of its loading processes.


def _begin_seeded(worker: int, num_workers: int, rank: int) -> None:
    _begin(worker)
    seed_worker(worker, num_workers, rank)


def _as_it_is(loaded: Any) -> Any:
    return loaded
