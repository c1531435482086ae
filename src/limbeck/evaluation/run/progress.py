"""`GridProgress`: the progress of all trainings of an evaluation.

A *training* is a fine-tuning with the cells that it is scored for. Some take many times as long as others, so each
counts by its *work*, an estimate of its cost. The share that is done is the sum of work x share over all trainings,
divided by the sum of their works.
"""

from collections.abc import Sequence

from limbeck.core.progress import Count, Report
from limbeck.evaluation.run.trainings import SharedTraining


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
        self._share_of_training: dict[str, float] = {}
        self._unscored_cells = {training.id: len(training.cells) for training in trainings}

    def advance(self, training: SharedTraining, share: float) -> None:
        """Report the share of a training that is done, 0 to 1."""
        self._report_share(training, share, f"cell {self.ended + 1} of {self.count}: {training.describe()}")

    def finish_cell(self, training: SharedTraining) -> None:
        """Count a cell as done; if it is the last of its training, report the training as done."""
        self.ended += 1
        self._unscored_cells[training.id] -= 1
        if self._unscored_cells[training.id] == 0:
            self._report_share(training, 1.0, f"{self.ended} of {self.count} cells done")

    def _report_share(self, training: SharedTraining, share: float, line: str) -> None:
        """Note the share of a training that is done, and report the share of all trainings.

        Args:
            training: The training.
            share: The share that is done, 0 to 1.
            line: The line of progress, in words.
        """
        self._share_of_training[training.id] = share
        work_done = 0.0
        for any_training in self._trainings:
            work_done += any_training.work * self._share_of_training.get(any_training.id, 0.0)
        total = min(work_done / self._total_work, 1.0)
        self._report(total, line, Count(self.count * total, "cells"))
