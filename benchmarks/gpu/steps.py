"""Whole MiniLMv2 steps beside those of peers: tokens a second, share of the device's peak, and peak memory.

limbeck's are its trainer's (`limbeck.benchmark.step`), in bfloat16 as a run has them: as they come, padded, and
compiled. The peers are those of `peer_steps.py`, on a batch of the same lengths, under bfloat16 autocast. Each side is
alone on the device while it is measured. A side that does not fit gets half of the batch, until it fits: tokens a
second are compared then, and memory with limbeck's at the same batch alone.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from benchmarks.gpu.device import data_sheet_peak, measured_peak
from benchmarks.gpu.parts import Request, Row

from limbeck.benchmark.peak_memory import watch_peak
from limbeck.benchmark.rows import tidy
from limbeck.benchmark.step import Step
from limbeck.benchmark.step_batch import make_batch
from limbeck.benchmark.step_setup import StepRequest, set_up_step
from limbeck.core.timing import stopwatch, summarise, take_turns
from peer_steps import PEERS, Setting, make_side
from training_step import Stepper

BASE = StepRequest(teacher="12x768", student="6x384", batch=256, length=128, ragged=True, dtype="bfloat16")
LARGE = replace(BASE, teacher="24x1024", length=512)
TOY = replace(BASE, teacher="2x48", student="1x24", batch=4, length=16, vocabulary=2000)
"""In place of both in a dry run; the peers' random words begin at the thousandth."""
DROPOUT = 0.1
# Seconds of a side's timing, and those below which none is begun.
TIMED, LEAST = 3.0, 8.0
SIDES = (
    ("limbeck", "bfloat16"),
    *((peer, "bfloat16") for peer in reversed(PEERS)),
    ("limbeck, padded", "bfloat16"),
    ("limbeck, compiled", "bfloat16"),
)


def measure_base(request: Request) -> Iterator[Row]:
    """BERT-base at 256 x 128."""
    return measure(TOY if request.dry else BASE, request)


def measure_large(request: Request) -> Iterator[Row]:
    """BERT-large at 256 x 512."""
    return measure(replace(TOY, teacher="3x48", length=32) if request.dry else LARGE, request)


def measure(asked: StepRequest, request: Request) -> Iterator[Row]:
    """Measure all sides that there is time for, limbeck's own first."""
    deadline, found = time.monotonic() + request.seconds, []
    peak = measured_peak(request)
    for name, dtype in SIDES:
        about = {"side": name, "dtype": dtype, "length": asked.length}
        if time.monotonic() + (0 if request.dry else LEAST) > deadline:
            yield about | {"problem": "left out: no time was left"}
            continue
        try:
            row = about | _measure_side(name, dtype, asked, request)
        except Exception as error:
            yield about | {"problem": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
            continue
        if "gflop" in row:
            reached = row["gflop"] / row["median_ms"] * 1e12
            row["share_of_measured_peak"] = reached / peak
            row["share_of_data_sheet"] = reached / sheet if (sheet := data_sheet_peak()) else None
        found.append(row)
        row["limbeck_is_faster"] = found[0]["tokens_per_second"] / row["tokens_per_second"]
        if row["batch"] == found[0]["batch"] and found[0]["peak_mb"] and row["peak_mb"]:
            row["limbeck_takes_of_memory"] = found[0]["peak_mb"] / row["peak_mb"]
        yield tidy(row)


def _measure_side(name: str, dtype: str, asked: StepRequest, request: Request) -> Row:
    """Measure a side at the largest batch that fits, halved from the one that is asked for."""
    size = asked.batch or 1
    while True:
        gc.collect()
        torch.cuda.empty_cache()
        try:
            return _measure_batch(name, dtype, replace(asked, batch=size), request)
        except torch.OutOfMemoryError:
            size //= 2
            if not size:
                raise


def _measure_batch(name: str, dtype: str, asked: StepRequest, request: Request) -> Row:
    device, made = torch.device(request.device), []

    def begin() -> None:
        made.append(
            _limbeck(name, asked, request) if name.startswith("limbeck") else _peer(name, dtype, asked, request)
        )
        for _ in range(2):  # The second has the optimizer's state.
            made[0][0]()

    started = time.perf_counter()
    peak = watch_peak(begin, device)
    warm = time.perf_counter() - started
    run, row = made[0]
    seconds = 0.1 if request.dry else TIMED
    times = take_turns({"step": stopwatch(run, device)}, seconds=seconds, most=50)["step"]
    spread = summarise(times)
    rate = row["tokens"] / spread["median_ms"] * 1000
    peak_mb = None if request.dry else peak.extra_mb  # A process of many sides tells little of one on a CPU.
    measured = {"rounds": len(times), **spread, "tokens_per_second": rate, "peak_mb": peak_mb}
    return {"batch": asked.batch, **row, **measured, "first_two_steps_seconds": warm}


def _limbeck(name: str, asked: StepRequest, request: Request) -> tuple[Callable[[], object], Row]:
    """Build limbeck's step, as it comes or changed as its name says."""
    setup = set_up_step(replace(asked, device=request.device))
    if name.endswith("compiled"):
        backend = {"torch_compile_backend": "eager"} if request.dry else {}
        setup = replace(setup, training={**setup.training, "torch_compile": True, **backend})
    step = Step(setup)
    if name.endswith("padded"):
        step.batches = [{key: x.clone() for key, x in batch.items()} for batch in step.batches]
    gflop = sum(part.count for part in step.operations().values()) / 1e9
    return step.run, {"tokens": step.tokens, "padding_share": step.padding_share, "gflop": gflop}


def _peer(name: str, dtype: str, asked: StepRequest, request: Request) -> tuple[Callable[[], object], Row]:
    """Build a peer's step with models of the same sizes, on the batch that limbeck has."""
    setup = set_up_step(replace(asked, device=request.device))
    student = setup.student_shape
    teacher = setup.teacher_shape
    setting = Setting(
        teacher=(teacher.layers, teacher.hidden),
        student=(student.layers, student.hidden),
        heads=student.heads,
        teacher_heads=teacher.heads,
        relation_heads=int(setup.terms[0].options["heads"]),
        vocabulary=student.vocabulary,
        dropout=DROPOUT,
        batch=setup.batch,
        length=setup.length,
        seed=0,
        device=request.device,
    )
    batch = {key: x.to(request.device) for key, x in make_batch(setup).items()}
    stepper = Stepper(make_side(name, dtype, setting, None), batch)
    return stepper.step, {"tokens": int(batch["attention_mask"].sum())}
