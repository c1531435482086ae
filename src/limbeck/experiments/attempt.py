"""A training and its cells, tried: a result of each, or why there is none in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from limbeck.errors import LimbeckError
from limbeck.evaluation.encoding import PreparedCell
from limbeck.evaluation.fine_tuning import CellResult, Share, train_once

Found = TypeVar("Found")


@dataclass(frozen=True)
class Job:
    """A training that is to run, and the cells that it is scored for.

    Attributes:
        id: Identity of the training, or of the one cell where nothing is trained.
        cells: By identity; of one model, grid point and seed.
        work: What it costs, compared with others.
    """

    id: str
    cells: Mapping[str, PreparedCell]
    work: float

    def describe(self) -> str:
        """Return it in a few words, for progress."""
        first, *others = (cell.cell for cell in self.cells.values())
        return first.describe() + (f"; scored on {', '.join(cell.task for cell in others)} too" if others else "")


@dataclass(frozen=True)
class Failure:
    """Why a cell gave nothing, in one line."""

    problem: str


Outcome = CellResult | Failure


def attempt(job: Job, report: Share) -> Iterator[tuple[str, Outcome]]:
    """Train once and score every cell; yields identity and outcome of each as soon as it is there.

    Whatever goes wrong in the training ends the cells of this job only, and in a cell that cell only.
    """
    trained = _tried(partial(train_once, list(job.cells.values()), report))
    for identity, cell in job.cells.items():
        yield identity, trained if isinstance(trained, Failure) else _tried(partial(trained.score, cell))


def _tried(action: Callable[[], Found]) -> Found | Failure:
    try:
        return action()
    except LimbeckError as error:
        return Failure(" ".join(str(error).split()))
    except Exception as error:  # A fault in one cell must not take the night's other cells with it.
        return Failure(" ".join(f"{type(error).__name__}: {error}".split()))
