"""The trials of a search for a shape: their attributes, and the row of the record that each makes.

A shape is *refused* if it cannot be trained or is beyond a limit. It is *cut* if its training was ended early because
others are better, and has *diverged* if its loss is not a finite number.
"""

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
"""The reason why the shape was refused; the trial is pruned, and cost no training."""
CUT = "cut"
"""The reason why the shape was cut; the trial is pruned."""
SAME_AS = "same_as"
"""The number of an earlier trial of the same shape; this trial has failed, since nothing was to be done."""

_BUSY = "the machine was busy"
"""Note of a shape whose latency is of processor times, see `limbeck.search.latency`."""


def point_of(trial: FrozenTrial) -> ShapePoint | None:
    """Return the shape of a trial; None if not all of its sizes are chosen yet."""
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
    """Gather a study's trials by shape; a shape is settled when it was trained, cut, refused or diverged."""

    def settles(trial: FrozenTrial) -> bool:
        if SAME_AS in trial.user_attrs:
            return False
        if trial.state == TrialState.FAIL:
            # Any other failed trial was lost with its worker, so that its shape is tried again.
            return bool(trial.user_attrs.get(DIVERGED))
        return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)

    return read_trials(study.get_trials(deepcopy=False), point_of, settles)


def trained_trials(log: TrialLog[ShapePoint]) -> list[FrozenTrial]:
    """Return the trials that cost training: all that settled a shape, but for refusals."""
    return [trial for trial in log.done.values() if REFUSED not in trial.user_attrs]


def shape_row(point: ShapePoint, trial: FrozenTrial) -> SearchedShape:
    """Return the row of a shape in the record, given the trial that settled it.

    Values that are not known, such as the loss of a refused shape, are None.
    """
    attributes = trial.user_attrs
    state, reason = _state_of(trial)
    # A refused shape may have no latency.
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
    """Return the state of a settled shape, given its trial, and the reason if it was not trained to the end."""
    if REFUSED in trial.user_attrs:
        return "refused", trial.user_attrs[REFUSED]
    if CUT in trial.user_attrs:
        return "cut", trial.user_attrs[CUT]
    if trial.user_attrs.get(DIVERGED):
        return "diverged", "its loss is not a finite number"
    return "trained", None
