"""Distilling the cells of a comparison one by one: what is finished is never repeated, what fails stops nothing."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from rich.console import Console

from limbeck.comparison.cells import Cell
from limbeck.core.files import read_record
from limbeck.errors import Interrupted, LimbeckError
from limbeck.training.run import STUDENT

Distil: TypeAlias = Callable[[dict[str, Any]], object]
"""Carries a recipe out in its `output`, going on where an earlier run of it stopped."""


def is_distilled(run: Path) -> bool:
    """Whether a run is finished, and its student is there."""
    return read_record(run).get("status") == "finished" and (run / STUDENT / "config.json").is_file()


def distil_cells(
    cells: Sequence[Cell], folder: Path, distil: Distil, console: Console
) -> Iterator[tuple[Cell, str | None]]:
    """Distil what is not yet.

    Args:
        cells: All cells, in this order.
        folder: Of the comparison.
        distil: Carries out one recipe.
        console: Is told which run it is, and about how long the rest takes.

    Yields:
        Each cell once it is settled, and why it failed, in one line; None where it did not.

    Raises:
        Interrupted: on Ctrl-C; the run that it met goes on from its checkpoint.
    """
    missing = [cell for cell in cells if not is_distilled(cell.folder(folder))]
    took: list[float] = []
    for cell in cells:
        if cell not in missing:
            yield cell, None
            continue
        _announce(cell, len(took) + 1, len(missing), took, console)
        started = time.monotonic()
        problem: str | None = None
        try:
            distil({**cell.recipe, "output": str(cell.folder(folder))})
        except (Interrupted, KeyboardInterrupt) as stopped:
            done = len(cells) - len(missing) + len(took)
            kind = type(stopped) if isinstance(stopped, Interrupted) else Interrupted  # SIGTERM has a code of its own.
            raise kind(
                f"Stopped at {cell.title}; {done} of {len(cells)} runs are done and kept in '{folder}'; the same "
                "command goes on from there."
            ) from None
        except LimbeckError as error:
            problem = one_line(error)
        except Exception as error:  # A fault in one run must not take the others with it.
            problem = f"{type(error).__name__}: {one_line(error)}"
        took.append(time.monotonic() - started)
        if problem is not None:
            console.print(f"  failed: {problem}", style="red", highlight=False, markup=False, soft_wrap=True)
        _free_memory()
        yield cell, problem


def one_line(error: BaseException) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split())


def _announce(cell: Cell, number: int, count: int, took: Sequence[float], console: Console) -> None:
    left = sum(took) / len(took) * (count - number + 1) if took else None
    rest = "" if left is None else f" (about {_duration(left)} for this and the rest)"
    console.print(f"Run {number} of {count}: {cell.title}{rest}", highlight=False, markup=False, soft_wrap=True)


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _free_memory() -> None:
    """A trainer holds itself in circles; without this two runs' models would be in memory at once."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
