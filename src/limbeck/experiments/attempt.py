"""One cell, tried: a result, or why there is none in one line."""

from __future__ import annotations

from dataclasses import dataclass

from limbeck.errors import LimbeckError
from limbeck.evaluation.fine_tuning.cell import Cell
from limbeck.evaluation.fine_tuning.prepared import PreparedTask
from limbeck.evaluation.fine_tuning.progress import Share
from limbeck.evaluation.fine_tuning.run_cell import CellResult, run_cell


@dataclass(frozen=True)
class Job:
    """A cell that is to run.

    Attributes:
        id: Its identity.
        cell: What to run.
        prepared: Its task.
        work: What it costs, compared with others.
    """

    id: str
    cell: Cell
    prepared: PreparedTask
    work: float


@dataclass(frozen=True)
class Failure:
    """Why a cell gave nothing, in one line."""

    problem: str


Outcome = CellResult | Failure


def attempt(job: Job, report: Share) -> Outcome:
    """Run a cell; whatever goes wrong in it ends this cell only."""
    try:
        return run_cell(job.cell, job.prepared, report)
    except LimbeckError as error:
        return Failure(" ".join(str(error).split()))
    except Exception as error:  # A fault in one cell must not take the night's other cells with it.
        return Failure(" ".join(f"{type(error).__name__}: {error}".split()))
