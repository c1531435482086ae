"""Latency of a forward pass, teacher beside student.

The two models take turns (A B A B …) in one process, so that whatever else the machine does falls on both,
and the speedup is the median of the ratios of neighbouring passes. The Transformer part is timed within the
same passes, from the entry of the first block to the exit of the last: it leaves out the embedding lookup and
its norm, and the pooler.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from limbeck.core.progress import Report, no_progress, part_of
from limbeck.core.records import BatchLatency, Latency, Times
from limbeck.core.timing import stopwatch, summarise, take_turns, tell_rounds
from limbeck.evaluation.costs import find_blocks
from limbeck.models.inference import device_of, encoder_of, longest_input
from limbeck.models.taps import evaluation_mode


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
    report: Report = no_progress,
) -> Latency:
    """Time teacher and student alternately.

    Args:
        teacher: A loaded encoder (of a task model, the encoder is timed).
        student: The same for the student, on the same device.
        batch_sizes: Texts per pass.
        length: Tokens per text; lowered to what both models can take.
        seconds: For everything together, shared by the batch sizes. At least `FEWEST_ROUNDS` rounds
            are made whatever they take.
        dtype: Of weights and activations. A model of another dtype is copied, never cast.
        warmup: Passes of each model at each batch size that are not counted.
        seed: Of the token ids, which both models share.
        report: Receives the progress.
    """
    for model in (teacher, student):
        length = min(length, longest_input(encoder_of(model)) or length)
    vocabulary = min(_vocabulary_size(teacher), _vocabulary_size(student))
    generator = torch.Generator().manual_seed(seed)
    with (
        evaluation_mode(encoder_of(teacher), dtype) as ready_teacher,
        evaluation_mode(encoder_of(student), dtype) as ready_student,
        torch.inference_mode(),
        _watch(ready_teacher) as time_teacher,
        _watch(ready_student) as time_student,
    ):
        batches = []
        deadline = time.perf_counter() + seconds
        for index, batch_size in enumerate(batch_sizes):
            input_ids = torch.randint(0, vocabulary, (batch_size, length), generator=generator)
            # Time left over by a fast batch size goes to the later ones.
            seconds_left = deadline - time.perf_counter()
            batch_sizes_left = len(batch_sizes) - index
            report_batch = part_of(report, index / len(batch_sizes), (index + 1) / len(batch_sizes))
            rounds = take_turns(
                {"teacher": partial(time_teacher, input_ids), "student": partial(time_student, input_ids)},
                seconds=seconds_left / batch_sizes_left,
                warmup=warmup,
                tell=tell_rounds(report_batch, f"latency, {batch_size} x {length} tokens"),
            )
            batches.append(_summarise_batch(batch_size, rounds["teacher"], rounds["student"]))
    return Latency(
        batches=batches,
        length=length,
        dtype=str(dtype).removeprefix("torch."),
        device=_device_name(device_of(teacher)),
        threads=torch.get_num_threads(),
    )


def _vocabulary_size(model: nn.Module) -> int:
    """Return the number of tokens of a model; 1 where its configuration has none, so that all ids are 0."""
    config = getattr(model, "config", None)
    size = int(getattr(config, "vocab_size", 0))
    return max(size, 1)


@contextmanager
def _watch(model: nn.Module) -> Iterator[Callable[[Tensor], tuple[float, float]]]:
    """Yield a function that runs a pass on token ids, and returns its seconds and those of its blocks.

    ALBERT calls the same block many times: the first entry and the last exit of any block are what counts.
    """
    device = device_of(model)
    on_gpu = device.type == "cuda"
    marks: list[Any] = []  # Seconds, or events of the GPU, which no pass waits for.

    def mark(*_: object) -> None:
        if on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            marks.append(event)
        else:
            marks.append(time.perf_counter())

    def run(input_ids: Tensor) -> tuple[float, float]:
        marks.clear()
        input_ids = input_ids.to(device)
        attention_mask = torch.ones_like(input_ids)
        time_pass = stopwatch(partial(model, input_ids=input_ids, attention_mask=attention_mask), device)
        seconds = time_pass()
        if not marks:
            return seconds, math.nan
        first, last = marks[0], marks[-1]
        if on_gpu:
            milliseconds = first.elapsed_time(last)
            return seconds, milliseconds / 1000
        return seconds, last - first

    blocks = find_blocks(model)
    hooks = [block.register_forward_pre_hook(mark) for block in blocks]
    hooks += [block.register_forward_hook(mark) for block in blocks]
    try:
        yield run
    finally:
        for hook in hooks:
            hook.remove()


def _summarise_batch(
    batch_size: int, teacher_rounds: list[tuple[float, float]], student_rounds: list[tuple[float, float]]
) -> BatchLatency:
    """Reduce the times of one batch size to medians, percentiles and speedups.

    Args:
        batch_size: Texts per pass.
        teacher_rounds: Seconds of the whole pass and of its blocks, for each round.
        student_rounds: Likewise, in the same rounds.
    """
    teacher = np.array(teacher_rounds)  # [rounds, (whole, blocks)]
    student = np.array(student_rounds)
    speedup, blocks_speedup = np.median(teacher / student, axis=0).tolist()
    return BatchLatency(
        batch_size=batch_size,
        rounds=len(teacher_rounds),
        teacher=Times(**summarise(teacher[:, 0])),
        student=Times(**summarise(student[:, 0])),
        teacher_transformer=Times(**summarise(teacher[:, 1])),
        student_transformer=Times(**summarise(student[:, 1])),
        speedup=speedup,
        transformer_speedup=blocks_speedup,
    )


def _device_name(device: torch.device) -> str:
    """Return for example `"cpu (x86_64)"` or `"cuda (NVIDIA H200)"`."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return f"{device.type} ({name})" if name else device.type
