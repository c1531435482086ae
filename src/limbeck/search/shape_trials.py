"""Student shapes as the parameters of Optuna's trials, and what a study's trials say about shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from optuna.trial import FrozenTrial, Trial, TrialState

from limbeck.search.shape_latency import ShapeLatency
from limbeck.search.shape_space import ShapePoint, ShapeSizes
from limbeck.search.trials import DIVERGED

SHAPE = "shape"
PARAMETERS = "parameters"
LATENCY = "latency"
LOSS = "loss"
STEPS = "steps"
SECONDS = "training_seconds"
"""User attribute of a trial: its part of the time that the shapes which were trained together took."""
REFUSED = "refused"
"""User attribute of a pruned trial: why the shape cost no training."""
CUT = "cut"
"""User attribute of a pruned trial: why its training was not finished."""
SAME_AS = "same_as"
"""User attribute of a trial whose shape an earlier one has: that one's number."""


def suggest_shape(trial: Trial, sizes: ShapeSizes) -> ShapePoint:
    """Have the study's sampler propose a shape, and write it into the trial."""
    chosen = {name: trial.suggest_categorical(name, known.choices) for name, known in sizes.distributions.items()}
    point = ShapePoint(**chosen)  # type: ignore[arg-type]
    trial.set_user_attr(SHAPE, str(point))
    return point


def point_of(trial: FrozenTrial) -> ShapePoint | None:
    """Return the shape of a trial; none if it has no whole one yet."""
    if not all(name in trial.params for name in ShapePoint._fields):
        return None
    return ShapePoint(**{name: trial.params[name] for name in ShapePoint._fields})


def note_latency(trial: Trial, latency: ShapeLatency) -> None:
    """Keep a latency in the trial that it was measured for."""
    trial.set_user_attr(LATENCY, asdict(latency))


def latency_of(trial: FrozenTrial | Trial) -> ShapeLatency | None:
    """Return the latency that was measured for a trial."""
    found = trial.user_attrs.get(LATENCY)
    return None if found is None else ShapeLatency(**found)


@dataclass(frozen=True)
class ShapeLedger:
    """What a study's trials say about shapes.

    Args:
        settled: The trial that settled each shape: it was trained, cut, diverged or refused.
        held: The running trial of each shape that a worker has, the first if several have it.
        latencies: What was measured of each shape, also where the trial was lost since.
    """

    settled: Mapping[ShapePoint, FrozenTrial]
    held: Mapping[ShapePoint, int]
    latencies: Mapping[ShapePoint, ShapeLatency]

    @property
    def trained(self) -> list[FrozenTrial]:
        """The trials that cost training, in the order of their numbers."""
        return [trial for trial in self.settled.values() if REFUSED not in trial.user_attrs]


def read_shapes(trials: Iterable[FrozenTrial]) -> ShapeLedger:
    """Gather what a study's trials, in the order of their numbers, say about shapes."""
    settled: dict[ShapePoint, FrozenTrial] = {}
    held: dict[ShapePoint, int] = {}
    latencies: dict[ShapePoint, ShapeLatency] = {}
    for trial in trials:
        point = point_of(trial)
        if point is None:
            continue
        if (latency := latency_of(trial)) is not None:
            latencies.setdefault(point, latency)
        if trial.state == TrialState.RUNNING:
            held.setdefault(point, trial.number)
        elif SAME_AS not in trial.user_attrs and _is_settled(trial):
            settled.setdefault(point, trial)
    return ShapeLedger(settled, held, latencies)


def _is_settled(trial: FrozenTrial) -> bool:
    """Whether nothing more is to be learned of a trial's shape; one that was lost or interrupted is open again."""
    if trial.state == TrialState.FAIL:
        return bool(trial.user_attrs.get(DIVERGED))
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
