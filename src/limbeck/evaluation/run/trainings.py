"""`SharedTraining`: cells that are scored by the same fine-tuning, run together, in this process or in several.

A *cell* is one model on one task, at one grid point and with one seed. A model that is trained on MNLI, for example,
is scored on MNLI, AX and XNLI: three cells with one training. Workers send *messages* to the main process, which alone
writes results.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from limbeck.core.progress import Count
from limbeck.core.workers import run_tasks
from limbeck.errors import PluginError, describe_error
from limbeck.evaluation.evaluators.evaluator import EVALUATORS, CellResult, ReadyCell
from limbeck.evaluation.run.score_range import find_score_out_of_range


@dataclass(frozen=True)
class SharedTraining:
    """A fine-tuning and the cells that it is scored for, or one cell where nothing is trained.

    Attributes:
        id: Identity of the training, or of the one cell where nothing is trained.
        evaluator: Name of the evaluator.
        cells: The cells by their identities; all have the same model, grid point and seed.
        work: Estimated cost, in the arbitrary units of `limbeck.evaluation.run.pending.work_of`.
    """

    id: str
    evaluator: str
    cells: Mapping[str, ReadyCell]
    work: float

    def describe(self) -> str:
        """Return the training in a few words, for lines of progress."""
        first, *others = [ready.cell for ready in self.cells.values()]
        if not others:
            return first.describe()
        return f"{first.describe()}; scored on {', '.join(cell.task for cell in others)} too"


@dataclass(frozen=True)
class Failure:
    """The outcome of a cell that failed: the reason, in one line."""

    problem: str


@dataclass(frozen=True)
class ShareDone:
    """The share of a training that is done, 0 to 1, with what an evaluator shows beside it; see `Share`."""

    share: float
    detail: str = ""
    count: Count | None = None


@dataclass(frozen=True)
class CellDone:
    """A cell that is done, by its identity, with its result or the reason for which it has none."""

    cell_id: str
    outcome: CellResult | Failure


Message = ShareDone | CellDone
"""What a training sends while it runs."""


def run_trainings(
    trainings: Sequence[SharedTraining], *, workers: int, received: Callable[[SharedTraining, Message], None]
) -> None:
    """Run trainings and score their cells, in this process or in several.

    Each worker process has its share of the cores and its own GPU. A Trainer that sees several GPUs would spread its
    batch over them, so on such a machine even a single worker gets a process of its own. A failed training affects only
    its own cells, a failed cell only itself.

    Args:
        trainings: The trainings, in the order in which they are started.
        workers: Number of processes; 1 runs the trainings in this process, unless there are several GPUs.
        received: Function that is called in this process with each training's messages, as they arrive. Every cell gets
            exactly one `CellDone`.
    """
    if workers == 1 and torch.cuda.device_count() <= 1:
        for training in trainings:
            run_training(training, partial(received, training))
        return

    # The cells that workers have not sent yet. A worker may be killed before it has sent all; these have then failed.
    missing_cells = {training.id: set(training.cells) for training in trainings}

    def pass_on(training: SharedTraining, message: Message) -> None:
        """Pass a message on, and note which cells are still missing."""
        if isinstance(message, CellDone):
            missing_cells[training.id].discard(message.cell_id)
        received(training, message)

    def ended(training: SharedTraining, problem: str | None) -> None:
        """Send a failure for each cell that the process has not sent."""
        missing = missing_cells.pop(training.id)
        for cell_id in training.cells:
            if cell_id in missing:
                received(training, CellDone(cell_id, Failure(problem or "It has no outcome.")))

    run_tasks(run_training, trainings, workers=workers, received=pass_on, ended=ended)


def run_training(training: SharedTraining, send: Callable[[Message], None]) -> None:
    """Run one training, and send the outcome of each of its cells.

    Args:
        training: The training.
        send: Receives the share that is done, and each cell that is done.
    """

    def report(share: float, detail: str = "", count: Count | None = None, /) -> None:
        send(ShareDone(float(share), detail, count))

    report(0.0)
    evaluator = EVALUATORS[training.evaluator]
    # An error in one training or cell must not stop the others, which may run all night.
    try:
        trained = evaluator.train(list(training.cells.values()), report)
    except Exception as error:
        for cell_id in training.cells:
            send(CellDone(cell_id, Failure(describe_error(error))))
        return
    for cell_id, ready in training.cells.items():
        outcome: CellResult | Failure
        try:
            result = evaluator.run(ready, trained, report)
            _check_scores(result, training.evaluator)
            outcome = result
        except Exception as error:
            outcome = Failure(describe_error(error))
        send(CellDone(cell_id, outcome))


def _check_scores(result: CellResult, evaluator: str) -> None:
    """Refuse a result whose row would be skipped when the results are read again.

    Raises:
        PluginError: for a score that is not between -1 and 1, or is not a number.
    """
    problem = find_score_out_of_range(result.scores)
    if problem is not None:
        if math.isnan(problem.value):
            raise PluginError(
                f"The evaluator '{evaluator}' returned nan as {problem.metric}, which is no score: return 0 where the "
                "metric is undefined."
            )
        raise PluginError(
            f"The evaluator '{evaluator}' returned {problem.value:g} as {problem.metric}, but scores must be from "
            "-1 to 1: return shares, not percent."
        )
