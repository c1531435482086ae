"""`GridProgress`: the progress of all trainings of an evaluation.

A *training* is a fine-tuning with the cells that it is scored for. Some take many times as long as others, so each
counts by its *work*, an estimate of its cost. The share that is done is the sum of work x share over all trainings,
divided by the sum of their works.
"""

from collections.abc import Sequence

from limbeck.core.progress import Count, Report
from limbeck.core.studies import EvaluationCell
from limbeck.evaluation.run.trainings import ShareDone, SharedTraining


class GridProgress:
    """Reports the share of all trainings that is done, weighted by their work.

    Args:
        trainings: All trainings.
        report: Receives the progress.

    Attributes:
        count: Number of cells.
        ended: Number of cells that are done, whether they gave a result or not.
    """

    def __init__(self, trainings: Sequence[SharedTraining], report: Report) -> None:
        self.ended = 0
        self.count = sum(len(training.cells) for training in trainings)
        self._trainings = trainings
        self._report = report
        self._total_work = sum(training.work for training in trainings)
        # The share of each training that is done, by the training's id. One that has not begun is missing.
        self._share_by_training: dict[str, float] = {}
        # What each training has counted last, such as tokens, by its id. One that counts nothing is missing.
        self._count_by_training: dict[str, Count] = {}
        # How many cells of each training are not done, by its id.
        self._cells_left = {training.id: len(training.cells) for training in trainings}
        # The score of the cell that was done last, in words; empty before the first, and after one that failed.
        self._last_score = ""

    def advance(self, training: SharedTraining, done: ShareDone) -> None:
        """Report how much of a training is done."""
        if done.count is not None:
            self._count_by_training[training.id] = done.count
        line = self._name_of(training)
        if done.detail:
            line += f": {done.detail}"
        if self._last_score:
            line += f" ({self._last_score})"
        # While rows are scored behind the steps of a training, no steps are counted, and the rate would seem to fall.
        is_scored = done.count is None and training.id in self._count_by_training
        self._report_share(training, done.share, line, with_count=not is_scored)

    def _name_of(self, training: SharedTraining) -> str:
        """Return the name of a training that goes on, with the number of its cell: a measurement, to users."""
        if self.count > 1:
            return f"measurement {self.ended + 1} of {self.count}: {training.describe()}"
        # A single cell is told by its task, so that a terminal has room for its epoch and its loss.
        [ready] = training.cells.values()
        return ready.cell.task

    def finish_cell(self, training: SharedTraining, score: str = "") -> None:
        """Count a cell as done; if it is the last of its training, report the training as done.

        Args:
            training: The training of the cell.
            score: The score of the cell in words, which the next lines show; empty for a cell that failed.
        """
        self.ended += 1
        self._cells_left[training.id] -= 1
        self._last_score = f"the last: {score}" if score else ""
        if self._cells_left[training.id] == 0:
            line = f"{self.ended} of {self.count} measurements done"
            if self._last_score:
                line += f" ({self._last_score})"
            self._report_share(training, 1.0, line)

    def _report_share(self, training: SharedTraining, share: float, line: str, *, with_count: bool = True) -> None:
        """Note the share of a training that is done, and report the share of all trainings.

        Args:
            training: The training.
            share: The share that is done, 0 to 1.
            line: The line of progress, in words.
            with_count: Whether what was counted is reported too.
        """
        self._share_by_training[training.id] = share
        work_done = 0.0
        for any_training in self._trainings:
            work_done += any_training.work * self._share_by_training.get(any_training.id, 0.0)
        # Rounding may carry the sum above the whole work.
        share_of_all = min(work_done / self._total_work, 1.0)
        count = None
        if with_count:
            count = self._count_of_all(share_of_all)
        self._report(share_of_all, line, count)

    def _count_of_all(self, share_of_all: float) -> Count | None:
        """Return what all trainings have counted together; None if they count in different units.

        As long as no training has counted anything, cells are counted.

        Args:
            share_of_all: The share of all trainings that is done.
        """
        counts = self._count_by_training.values()
        units = {count.unit for count in counts}
        if not units:
            return Count(self.count * share_of_all, "measurements")
        if len(units) > 1:
            return None
        [unit] = units
        return Count(sum(count.done for count in counts), unit)


def describe_score(row: EvaluationCell) -> str:
    """Return the first score of a finished cell in words: "my-student, mrpc: accuracy 0.853"; empty without any."""
    for scores in row.scores.values():
        for metric, value in scores.items():
            if value is not None:
                return f"{row.model}, {row.task}: {metric} {value:.3f}"
    return ""
