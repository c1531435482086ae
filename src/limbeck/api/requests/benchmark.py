"""The options of `limbeck benchmark` and `limbeck.benchmark`: those of all benchmarks, and those of each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.requests import completions, shared, values
from limbeck.api.requests.completions import DTYPES, OBJECTIVES
from limbeck.api.requests.fields import MEASURING, RESULT, argument, option, request
from limbeck.api.requests.shared import LONGEST_SECONDS
from limbeck.core.lists import MOST


@request
class BenchmarkRequest:
    """The options of every benchmark."""

    _: KW_ONLY
    device: str = option('`"auto"`, `"cpu"`, `"cuda"` …', default="auto")
    seconds: float = option(
        "Time for all measurements; every case gets at least five rounds.",
        default=30.0,
        least=0.01,
        most=LONGEST_SECONDS,
        panel=MEASURING,
    )
    output: str | Path | None = option(
        "Write the rows, with device, versions and commit, to a .csv or .json file.",
        default=None,
        cls=Path,
        panel=RESULT,
    )
    console: Console | None = shared.console_option()


def _ragged_option() -> Any:
    """Return the field of `ragged`."""
    return option("Draw the length of each sample from L/2 to L instead of using the length L for all.", default=False)


def _memory_option() -> Any:
    """Return the field of `memory`."""
    return option("Also measure peak memory; on a CPU in separate processes.", default=True, panel=MEASURING)


def _dtype_option() -> Any:
    """Return the field of `dtype`."""
    return option(
        "float32, bfloat16 or float16.", default="float32", panel=MEASURING, complete=completions.complete(DTYPES)
    )


@request
class LossRequest(BenchmarkRequest):
    """A loss, and the sizes that it is measured at."""

    _: KW_ONLY
    objective: str = option(
        f"{', '.join(OBJECTIVES[:-1])} or {OBJECTIVES[-1]}.",
        default="relation_kl",
        complete=completions.complete(OBJECTIVES),
    )
    backends: str | None = option(
        "Backends to measure, separated by commas; default: all that run on the device.",
        default=None,
        cls=str,
        reads=values.optional_commas,
    )
    lengths: tuple[int, ...] = option(
        "Numbers of tokens of the longest sample, separated by commas; each is measured.",
        default=(128, 512),
        cls=str,
        reads=values.numbers,
    )
    heads: tuple[int, ...] | None = option(
        "Numbers of heads, separated by commas; default: 48, or 12 for attention_score_mse.",
        default=None,
        cls=str,
        reads=values.optional_numbers,
    )
    batch: int = option("Samples in a batch.", default=8, least=1, most=MOST)
    widths: tuple[int, ...] = option(
        "Widths of teacher and student.", default=(768, 384), cls=str, reads=values.numbers
    )
    classes: int = option("Vocabulary size of soft labels.", default=30_522, least=2, most=10 * MOST)
    pair: bool = option("Relate two streams to each other instead of one to itself.", default=False)
    ragged: bool = _ragged_option()
    dtype: str = _dtype_option()
    memory: bool = _memory_option()


@request
class StepRequest(BenchmarkRequest):
    """A training step: of a recipe's stage, or of a method with a teacher and a student."""

    recipe: str | Path | None = argument(
        "Recipe (YAML) whose step is timed; without a recipe, --teacher, --student and --method describe the step.",
        default=None,
        cls=Path,
        show_default=False,
    )
    _: KW_ONLY
    teacher: str | None = option(
        'Shape (layers x width) of a BERT teacher, or a model; default: "12x768".', default=None
    )
    student: str | None = option('Shape (layers x width) of the student; default: "6x384".', default=None)
    method: str | None = option(
        "Method, with its default options; default: minilmv2.",
        default=None,
        complete=completions.complete(completions.METHODS),
    )
    vocabulary: int | None = option(
        "Vocabulary size of both models; default: the teacher's.", default=None, least=2, most=10 * MOST
    )
    stage: int = option("Number of the stage in the recipe or method.", default=1, least=1)
    batch: int | None = option("Samples in a batch; default: the recipe's, or 8.", default=None, least=1, most=MOST)
    length: int | None = option(
        "Length of the longest sample in tokens; default: the recipe's, or 128.", default=None, least=2, most=MOST
    )
    ragged: bool = _ragged_option()
    dtype: str = option(
        "Number format of both models: auto (as in training), float32 or bfloat16.",
        default="auto",
        panel=MEASURING,
        complete=completions.complete(("auto", *DTYPES[:2])),
    )
    memory: bool = _memory_option()
    overrides: str | Sequence[str] = shared.overrides_option()


@request
class ModelRequest(BenchmarkRequest):
    """Models, and the sizes of the texts that they read."""

    models: Any = argument(
        'Models to time: folders of runs or models, Hub names or shapes such as "6x384"; speedups are relative to the '
        "first model.",
        cls=list[str],
    )
    _: KW_ONLY
    batch_sizes: tuple[int, ...] = option(
        "Batch sizes, separated by commas.", default=(1, 32), cls=str, reads=values.numbers
    )
    lengths: tuple[int, ...] = option(
        "Text lengths in tokens, separated by commas.", default=(128,), cls=str, reads=values.numbers
    )
    dtype: str = _dtype_option()
    warmup: int = option(
        "Warm-up passes of each model, which are not counted.", default=2, least=0, most=1000, panel=MEASURING
    )


BENCHMARKS: Mapping[str, type[BenchmarkRequest]] = {
    "loss": LossRequest,
    "step": StepRequest,
    "model": ModelRequest,
}
"""Kinds of benchmarks by the names of their commands."""
SUBJECTS = {"loss": "objective", "step": "recipe", "model": "models"}
"""The option of each kind that Python's second argument is."""
