"""`Cell`, the unit of an evaluation: a model, a task, a grid point and a seed.

A *grid point* is one combination of settings, such as one learning rate with one number of epochs. A cell goes through
three classes: `Cell` says what is to be evaluated, `PlannedCell` adds the identities by which results are found again,
and `limbeck.evaluation.evaluators.evaluator.ReadyCell` is a cell with the tokens that it needs to run.
"""

from dataclasses import dataclass

from limbeck.evaluation.plan.points import Point, TrainingPoint


@dataclass(frozen=True)
class Cell:
    """A model on a task, at a grid point, with a seed.

    Attributes:
        model: The model's name, as the user gave it.
        task: Name of the task, or the path of its file.
        point: The settings.
        seed: The seed of head, order of rows and dropout; 0 where nothing is trained.
    """

    model: str
    task: str
    point: Point
    seed: int

    @property
    def is_trained(self) -> bool:
        """Whether the cell is a fine-tuning; only then it has weights of its own that can be kept."""
        return isinstance(self.point, TrainingPoint)

    def describe(self) -> str:
        """Return the cell in a few words, for lines of progress."""
        if not isinstance(self.point, TrainingPoint):
            return f"{self.model}, {self.task}"
        epochs = f"{self.point.epochs:g} epoch"
        if self.point.epochs != 1:
            epochs += "s"
        return f"{self.model}, {self.task}, rate {self.point.learning_rate:g}, {epochs}, seed {self.seed}"


@dataclass(frozen=True)
class PlannedCell:
    """A cell and its identities, which are hashes; see `limbeck.evaluation.plan.identity`.

    Attributes:
        cell: The cell.
        id: The cell's identity: two cells with the same identity have the same result.
        training: Identity of the cell's fine-tuning, which cells of other tasks may share. Where nothing is trained, it
            is the same as `id`.
    """

    cell: Cell
    id: str
    training: str
