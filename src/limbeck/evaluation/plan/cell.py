"""`Cell`, the unit of an evaluation: a model, a task, a grid point and a seed."""

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
        """Whether it has weights, which only a training gives it."""
        return isinstance(self.point, TrainingPoint)

    def describe(self) -> str:
        """Return it in a few words, for progress."""
        if not isinstance(self.point, TrainingPoint):
            return f"{self.model}, {self.task}"
        epochs = f"{self.point.epochs:g} epoch"
        if self.point.epochs != 1:
            epochs += "s"
        return f"{self.model}, {self.task}, rate {self.point.learning_rate:g}, {epochs}, seed {self.seed}"


@dataclass(frozen=True)
class PlannedCell:
    """A cell and its identities, see `limbeck.evaluation.plan.identity`.

    Attributes:
        cell: The cell.
        id: Its identity.
        training: Identity of its fine-tuning, which cells of other tasks may share; its own where nothing is trained.
    """

    cell: Cell
    id: str
    training: str
