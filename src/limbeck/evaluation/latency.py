"""Latency of forward passes: any number of models in turns, on the same token ids.

`time_passes` is the one procedure of latency; benchmarks, searches and exports use it too. The models take turns
(A B, B A, A B …) in one process, so that whatever else the machine does falls on all of them alike.
`measure_latency` sums it up for a teacher and its student: medians, and speedups of neighbouring passes.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.core.devices import synchronise
from limbeck.core.progress import Report, no_progress, part_of
from limbeck.core.records import BatchLatency, Latency, Times
from limbeck.core.timing import (
    FEWEST_ROUNDS,
    FURTHER_ROUNDS,
    MOST_ROUNDS,
    CoreDemand,
    Tell,
    TooSlowError,
    has_few_rounds,
    is_beyond_shapes,
    speedup,
    summarise,
    take_turns,
    tell_rounds,
)
from limbeck.evaluation.costs import find_blocks, work_ratio
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.inference import device_of, encoder_of, longest_input

_MOST_TIMES = 5
"""How many times the time for all batch sizes the fewest rounds of one of them may take, unless it is the first."""
_ALLOWED_SECONDS = 60.0
"""Seconds that they may take in any case."""


@dataclass(frozen=True)
class PassTime:
    """The time of one forward pass.

    Attributes:
        wall: Seconds on the clock, the device's work included.
        cpu: Processor seconds of the thread that called the model; None where another device computed.
        blocks: Seconds of the Transformer part, from the entry of the first block to the exit of the last. It leaves
            out the embedding lookup with its norm, and the pooler. NaN where no block was watched or called, and on
            devices other than a CPU and CUDA.
    """

    wall: float
    cpu: float | None = None
    blocks: float = math.nan


def wall_times(passes: Sequence[PassTime]) -> list[float]:
    """Return the seconds on the clock of each pass."""
    return [one_pass.wall for one_pass in passes]


def time_passes(
    models: Mapping[str, Callable[..., object]],
    input_ids: Tensor,
    *,
    seconds: float,
    warmup: int = 2,
    fewest: int = FEWEST_ROUNDS,
    most: int = MOST_ROUNDS,
    most_seconds: float | None = None,
    blocks: Mapping[str, nn.ModuleList] | None = None,
    tell: Tell | None = None,
) -> dict[str, list[PassTime]]:
    """Time forward passes of models in turns, on texts without padding.

    Args:
        models: Name to model, ready for inference on the device of the texts: a module in evaluation mode, or any
            callable that takes `input_ids` and `attention_mask` as keywords.
        input_ids: `[B, L]` int64 on that device.
        seconds: Time for all passes together. At least `fewest` rounds are made, even if they take longer.
        warmup: Passes of each model that are not counted.
        fewest: Least number of counted passes of each model.
        most: Greatest number of counted passes of each model.
        most_seconds: The longest time that the fewest rounds may take; None for any.
        blocks: Name of a model to its Transformer blocks, whose part of a pass is timed too.
        tell: Receives the progress.

    Returns:
        Name to the counted passes of the model. The passes with the same index in two lists are of the same round.

    Raises:
        TooSlowError: for rounds that would take longer than that.
    """
    inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    runs: dict[str, Callable[[], PassTime]] = {}
    with ExitStack() as stack, torch.inference_mode():
        for name, model in models.items():
            clock = _BlockClock(input_ids.device)
            if blocks is not None:
                stack.enter_context(clock.watching(blocks[name]))
            runs[name] = partial(_time_pass, partial(model, **inputs), clock, input_ids.device)
        return take_turns(
            runs,
            seconds=seconds,
            warmup=warmup,
            fewest=fewest,
            most=most,
            most_seconds=most_seconds,
            tell=tell,
        )


def measure_latency(
    teacher: nn.Module,
    student: nn.Module,
    *,
    batch_sizes: Sequence[int] = (1, 32),
    length: int = 128,
    seconds: float = 20.0,
    dtype: torch.dtype = torch.float32,
    warmup: int = 2,
    seed: int = 0,
    left_out: dict[int, float] | None = None,
    report: Report = no_progress,
) -> Latency:
    """Time teacher and student alternately.

    Args:
        teacher: A loaded encoder (of a task model, the encoder is timed).
        student: The same for the student, on the same device.
        batch_sizes: Texts per pass.
        length: Tokens per text; lowered to what both models can take.
        seconds: For everything together, shared by the batch sizes. At least `FEWEST_ROUNDS` rounds
            are made whatever they take, and `FURTHER_ROUNDS` more where the shapes of the models cannot give the
            speedup of few rounds.
        dtype: Type of weights and activations. A model of another type is copied, and not changed in place.
        warmup: Passes of each model at each batch size that are not counted.
        seed: Seed of the token ids, which both models share.
        left_out: Receives, in place, each batch size that is left out, with the seconds that its rounds would have
            taken: one behind the first whose rounds would take more than a minute, and more than five times `seconds`.
            None measures all batch sizes.
        report: Receives the progress.
    """
    for model in (teacher, student):
        longest = longest_input(encoder_of(model))
        if longest:
            length = min(length, longest)
    # Both models read the same ids, which therefore stay within the smaller vocabulary.
    vocabulary = min(_vocabulary_size(teacher), _vocabulary_size(student))
    device = device_of(teacher)
    generator = torch.Generator().manual_seed(seed)
    with (
        evaluation_mode(encoder_of(teacher), dtype) as timed_teacher,
        evaluation_mode(encoder_of(student), dtype) as timed_student,
    ):
        blocks = {"teacher": find_blocks(timed_teacher), "student": find_blocks(timed_student)}
        # Ids of 0 are in every vocabulary.
        shape_ratio = work_ratio(
            timed_teacher, timed_student, torch.zeros((1, length), dtype=torch.long, device=device)
        )
        batches = []
        deadline = time.perf_counter() + seconds
        for index, batch_size in enumerate(batch_sizes):
            # Time left over by a fast batch size goes to the later ones.
            seconds_left = deadline - time.perf_counter()
            batch_sizes_left = len(batch_sizes) - index
            report_batch = part_of(report, index / len(batch_sizes), (index + 1) / len(batch_sizes))
            input_ids = torch.randint(0, vocabulary, (batch_size, length), generator=generator)
            most_seconds = None
            if left_out is not None and index > 0:
                most_seconds = longest_rounds(seconds)
            core_demand = CoreDemand(torch.get_num_threads())
            models = {"teacher": timed_teacher, "student": timed_student}
            time_models = partial(time_passes, models, input_ids.to(device), blocks=blocks)
            try:
                passes = time_models(
                    seconds=seconds_left / batch_sizes_left,
                    warmup=warmup,
                    most_seconds=most_seconds,
                    tell=tell_rounds(report_batch, f"latency, {batch_size} x {length} tokens"),
                )
            except TooSlowError as error:
                assert left_out is not None
                left_out[batch_size] = error.seconds
                continue
            batch = _summarise_batch(batch_size, passes["teacher"], passes["student"], shape_ratio)
            # In few rounds, a short disturbance may have slowed down one model more often. Further rounds outnumber it.
            if has_few_rounds(batch.rounds) and _is_beyond_shapes(batch):
                further_passes = time_models(seconds=0.0, warmup=0, fewest=FURTHER_ROUNDS)
                for name, passes_of_model in further_passes.items():
                    passes[name] += passes_of_model
                batch = _summarise_batch(batch_size, passes["teacher"], passes["student"], shape_ratio)
            # Programs on the CPU hardly slow down another device.
            if device.type == "cpu":
                batch.demand = core_demand.for_each_core()
            batches.append(batch)
    return Latency(
        batches=batches,
        length=length,
        dtype=str(dtype).removeprefix("torch."),
        device=_device_name(device),
        threads=torch.get_num_threads(),
    )


def longest_rounds(seconds: float) -> float:
    """Return how long the fewest rounds of a batch size behind the first may take, given `measure_latency`'s `seconds`.

    Args:
        seconds: For all batch sizes together.
    """
    return max(_MOST_TIMES * seconds, _ALLOWED_SECONDS)


def least_setting(seconds: float) -> int:
    """Return whole `seconds` for `measure_latency` by which rounds that took this long are measured.

    The rounds of another measurement take another time, so they may take a quarter longer.
    """
    return math.ceil(1.25 * seconds / _MOST_TIMES)


class _BlockClock:
    """Times the Transformer part of a pass, from the first entry into a block to the last exit from one.

    ALBERT calls the same block many times, so all entries and exits are marked, and the first and last mark count.

    Args:
        device: The device of the model. On devices other than a CPU and CUDA nothing is marked: the CPU does not wait
            for their work, and their own events are not read here.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._can_mark = device.type in ("cpu", "cuda")
        # Points in time: seconds of the clock, or events of the GPU, since the CPU does not wait for the GPU's work.
        self._marks: list[Any] = []

    @contextmanager
    def watching(self, blocks: nn.ModuleList) -> Iterator[None]:
        """Mark entries and exits of blocks inside of the context."""
        if not self._can_mark:
            yield
            return
        hooks = [block.register_forward_pre_hook(self._mark) for block in blocks]
        hooks += [block.register_forward_hook(self._mark) for block in blocks]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def restart(self) -> None:
        """Forget the marks of the last pass."""
        self._marks.clear()

    def seconds(self) -> float:
        """Return the seconds from the first entry to the last exit, once the device is done; NaN without blocks."""
        if not self._marks:
            return math.nan
        first = self._marks[0]
        last = self._marks[-1]
        if self._on_gpu:
            milliseconds: float = first.elapsed_time(last)
            return milliseconds / 1000
        seconds: float = last - first
        return seconds

    def _mark(self, *_: object) -> None:
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())


def _time_pass(run: Callable[[], object], clock: _BlockClock, device: torch.device) -> PassTime:
    """Time one pass, the device's work included."""
    clock.restart()
    synchronise(device)
    wall_start = time.perf_counter()
    cpu_start = time.thread_time()
    run()
    synchronise(device)
    cpu: float | None = time.thread_time() - cpu_start
    wall = time.perf_counter() - wall_start
    if device.type != "cpu":
        # The time of this thread says nothing of the work of another device.
        cpu = None
    return PassTime(wall, cpu=cpu, blocks=clock.seconds())


def _vocabulary_size(model: nn.Module) -> int:
    """Return the number of tokens of a model; 1 where its configuration has none, so that all ids are 0."""
    config = getattr(model, "config", None)
    size = int(getattr(config, "vocab_size", 0))
    return max(size, 1)


def _summarise_batch(
    batch_size: int, teacher: Sequence[PassTime], student: Sequence[PassTime], shape_ratio: float | None
) -> BatchLatency:
    """Reduce the times of one batch size to medians, percentiles and speedups."""
    teacher_walls = wall_times(teacher)
    student_walls = wall_times(student)
    teacher_blocks = [pass_time.blocks for pass_time in teacher]
    student_blocks = [pass_time.blocks for pass_time in student]
    return BatchLatency(
        batch_size=batch_size,
        rounds=len(teacher),
        teacher=Times(**summarise(teacher_walls)),
        student=Times(**summarise(student_walls)),
        teacher_transformer=Times(**summarise(teacher_blocks)),
        student_transformer=Times(**summarise(student_blocks)),
        speedup=speedup(teacher_walls, student_walls),
        transformer_speedup=speedup(teacher_blocks, student_blocks),
        shape_ratio=shape_ratio,
    )


def _is_beyond_shapes(batch: BatchLatency) -> bool:
    """Return whether the speedup of the models or of their blocks is above what their shapes can give."""
    speedups = (batch.speedup, batch.transformer_speedup)
    return any(is_beyond_shapes(value, batch.shape_ratio, rounds=batch.rounds) for value in speedups)


def _device_name(device: torch.device) -> str:
    """Return for example `"cpu (x86_64)"` or `"cuda (NVIDIA H200)"`."""
    name = platform.machine()
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    # The platform may not know its machine.
    return f"{device.type} ({name})" if name else device.type
