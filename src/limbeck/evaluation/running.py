"""Trainings and their cells, run in this process or in several."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from limbeck.core.workers import run_tasks
from limbeck.errors import describe_error
from limbeck.evaluation import encoding, kept_weights
from limbeck.evaluation.fine_tuning import CellResult, Share, Trained, train_once

Found = TypeVar("Found")


@dataclass(frozen=True)
class SharedTraining:
    """A fine-tuning and the cells that it is scored for.

    Attributes:
        id: Identity of the training, or of the one cell where nothing is trained.
        cells: By identity; of one model, grid point and seed.
        work: Its cost, compared with that of others.
        keep: Folder in which the weights of each cell are kept by its identity; None keeps none.
    """

    id: str
    cells: Mapping[str, encoding.PreparedCell]
    work: float
    keep: Path | None = None

    def describe(self) -> str:
        """Return it in a few words, for progress."""
        first, *others = (cell.cell for cell in self.cells.values())
        return first.describe() + (f"; scored on {', '.join(cell.task for cell in others)} too" if others else "")


@dataclass(frozen=True)
class Failure:
    """Why a cell gave nothing, in one line."""

    problem: str


Outcome = CellResult | Failure
Message = float | tuple[str, Outcome]
"""The share of a training that is done, 0 to 1; or the identity of one of its cells with its outcome."""


def run_trainings(
    trainings: Sequence[SharedTraining], *, workers: int, received: Callable[[SharedTraining, Message], None]
) -> None:
    """Run trainings and score their cells, in this process or in several, each with its share of cores and its GPU.

    A Trainer that sees several GPUs would spread its batch over them, so on such a machine even a single worker has a
    separate process. A failed training ends its own cells only, and a failed cell itself only.

    Args:
        trainings: In this order.
        workers: Processes; 1 runs them in this one.
        received: Is called with every message of a training, as soon as it is there.
    """
    if workers == 1 and torch.cuda.device_count() <= 1:
        for training in trainings:
            _run_training(training, partial(received, training))
        return
    left = {training.id: dict.fromkeys(training.cells) for training in trainings}

    def pass_on(training: SharedTraining, message: Message) -> None:
        if isinstance(message, tuple):
            del left[training.id][message[0]]
        received(training, message)

    def ended(training: SharedTraining, problem: str | None) -> None:
        for identity in left.pop(training.id):
            received(training, (identity, Failure(problem or "It has no outcome.")))

    run_tasks(_run_training, trainings, workers=workers, received=pass_on, ended=ended)


def _run_training(training: SharedTraining, send: Callable[[Message], None]) -> None:
    def tell(share: float) -> None:
        send(float(share))

    tell(0.0)
    trained = _tried(partial(train_once, list(training.cells.values()), tell))
    for identity, cell in training.cells.items():
        place = None if training.keep is None else training.keep / identity
        scored = trained if isinstance(trained, Failure) else _tried(partial(_score, trained, cell, place, tell))
        send((identity, scored))


def _score(trained: Trained, cell: encoding.PreparedCell, place: Path | None, report: Share) -> CellResult:
    """Score a cell, and keep the weights that it was scored by."""
    found, tuner = trained.score(cell, report), trained.tuner
    if place is None or tuner is None:
        return found
    return replace(found, weights=kept_weights.save_weights(place, tuner.model, tuner.tokenizer))


def _tried(action: Callable[[], Found]) -> Found | Failure:
    try:
        return action()
    except Exception as error:  # A fault in one cell must not take the night's other cells with it.
        return Failure(describe_error(error))
