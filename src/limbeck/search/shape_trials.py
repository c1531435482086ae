"""The trials of a search for a shape: what they hold, and the row of the record that each makes."""

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from limbeck.core.studies import SearchedShape
from limbeck.search.latency import ShapeLatency
from limbeck.search.shape_space import ShapePoint
from limbeck.search.trial_log import DIVERGED, TrialLog, read_trials
from limbeck.search.work import TRAINING_SECONDS

# User attributes of a trial.
SHAPE = "shape"
"""The shape in words."""
PARAMETERS = "parameters"
LATENCY = "latency"
"""The fields of a `ShapeLatency`."""
LOSS = "loss"
STEPS = "steps"
REFUSED = "refused"
"""The reason why the shape cost no training, of a pruned trial."""
CUT = "cut"
"""The reason why its training was not finished, of a pruned trial."""
SAME_AS = "same_as"
"""The number of the earlier trial that has the same shape."""

_BUSY = "the machine was busy"
"""Note of a shape whose latency is of processor times."""


def point_of(trial: FrozenTrial) -> ShapePoint | None:
    """Return the shape of a trial; None if it has no whole one yet."""
    if not all(name in trial.params for name in ShapePoint._fields):
        return None
    return ShapePoint(**{name: trial.params[name] for name in ShapePoint._fields})


def latency_of(trial: FrozenTrial | Trial) -> ShapeLatency | None:
    """Return the latency that was measured for a trial; None before that."""
    latency = trial.user_attrs.get(LATENCY)
    if latency is None:
        return None
    return ShapeLatency(**latency)


def read_shapes(study: Study) -> TrialLog[ShapePoint]:
    """Gather a study's trials by shape; one is settled when it was trained, cut, refused or diverged."""

    def settles(trial: FrozenTrial) -> bool:
        if SAME_AS in trial.user_attrs:
            return False
        if trial.state == TrialState.FAIL:
            # A failed trial was lost with its worker, unless its shape diverged.
            return bool(trial.user_attrs.get(DIVERGED))
        return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)

    return read_trials(study.get_trials(deepcopy=False), point_of, settles)


def trained_trials(log: TrialLog[ShapePoint]) -> list[FrozenTrial]:
    """Return the trials that cost training."""
    return [trial for trial in log.done.values() if REFUSED not in trial.user_attrs]


def shape_row(point: ShapePoint, trial: FrozenTrial) -> SearchedShape:
    """Return a shape of the record, given the trial that settled it.

    Its parameters, latency, loss and reward are there as far as they are known, with its `state` and the `reason`.
    """
    attributes = trial.user_attrs
    state, reason = _state_of(trial)
    latency = attributes.get(LATENCY, {})
    note = _BUSY if latency.get("busy") else None
    reward = trial.value if state == "trained" else None
    return SearchedShape(
        trial=trial.number,
        layers=point.layers,
        hidden=point.hidden,
        heads=point.heads,
        ffn=point.ffn_width,
        parameters=attributes.get(PARAMETERS),
        loss=attributes.get(LOSS),
        steps=attributes.get(STEPS),
        training_seconds=attributes.get(TRAINING_SECONDS),
        latency_share=latency.get("share"),
        latency_ms=latency.get("student_ms"),
        teacher_ms=latency.get("teacher_ms"),
        threads=latency.get("threads"),
        note=note,
        reward=reward,
        rewards_on_the_way={str(step): value for step, value in trial.intermediate_values.items()},
        state=state,
        reason=reason,
    )


def _state_of(trial: FrozenTrial) -> tuple[str, str | None]:
    """Return the state of a trial that is settled, and the reason if its shape was not trained to the end."""
    if REFUSED in trial.user_attrs:
        return "refused", trial.user_attrs[REFUSED]
    if CUT in trial.user_attrs:
        return "cut", trial.user_attrs[CUT]
    if trial.user_attrs.get(DIVERGED):
        return "diverged", "its loss is not a finite number"
    return "trained", None
