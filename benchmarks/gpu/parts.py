"""The parts of the measurement, in the order in which they run, and the time that each may take."""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What a part is asked for.

    Attributes:
        dry: Toy sizes on the CPU, by the same code.
        seconds: That it has.
    """

    dry: bool
    seconds: float

    @property
    def device(self) -> str:
        """Where it computes."""
        return "cpu" if self.dry else "cuda"


Measure: TypeAlias = Callable[[Request], Iterator[Row]]


@dataclass(frozen=True)
class Part:
    """A part, which has a process of its own: what one of them breaks does not stop the others.

    Attributes:
        name: As the command and the result file have it.
        title: Of its table.
        function: `module:name` of its `Measure`.
        seconds: That it may take on a GPU.
    """

    name: str
    title: str
    function: str
    seconds: int


PARTS = (
    Part("device", "The device", "device:measure", 30),
    Part("relation", "`relation_kl`, forward and backward", "losses:measure_relation", 45),
    Part("step_base", "Whole steps, BERT-base to 6x384", "steps:measure_base", 100),
    Part("step_large", "Whole steps, BERT-large to 6x384", "steps:measure_large", 150),
    Part("loop", "Host syncs in the training loop", "loop:measure", 40),
    Part("soft_labels", "Soft labels from hidden states", "losses:measure_soft_labels", 30),
    Part("generation", "A generation of 12 students", "generation:measure", 75),
    Part("tests", "Tests marked `gpu`", "checks:measure", 120),
)


def run_part(name: str, dry: bool, rows: Path) -> int:
    """Import a part in this process, wait for its deadline by `time.monotonic`, and add its rows to a file one by one.

    Returns:
        0, or 1 after an error, whose line ends the file.
    """
    part = next(part for part in PARTS if part.name == name)
    module, function = part.function.split(":")
    with rows.open("a", encoding="utf-8") as file:
        try:
            measure: Measure = getattr(importlib.import_module(f"benchmarks.gpu.{module}"), function)
            seconds = float(sys.stdin.readline()) - time.monotonic()
            for row in measure(Request(dry, seconds)):
                print(json.dumps(row), file=file, flush=True)
        except Exception as error:
            traceback.print_exc()
            problem = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            print(json.dumps({"problem": problem}), file=file, flush=True)
            return 1
    return 0
