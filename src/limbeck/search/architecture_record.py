"""The record of a search of shapes: all that its study knows, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from statistics import median
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.core.machine import git_commit, hardware, versions
from limbeck.errors import TrainingError
from limbeck.search.architecture_request import ArchitectureSearch
from limbeck.search.pareto import pareto_front
from limbeck.search.shape_space import ShapePoint, with_shape
from limbeck.search.shape_trials import (
    CUT,
    LOSS,
    PARAMETERS,
    REFUSED,
    SAME_AS,
    SECONDS,
    STEPS,
    latency_of,
    read_shapes,
)
from limbeck.search.storage import shown
from limbeck.search.study import IDENTITY
from limbeck.search.trials import DIVERGED

KIND = "architecture"
BUSY = "the machine was busy"
"""Note of a shape whose latency is of processor times."""
UNTRAINED_LOSS = "untrained loss"
"""Study attribute: the loss that is 1 in this study."""


def architecture_record(search: ArchitectureSearch, study: Study) -> dict[str, Any]:
    """Return the record of a search.

    Args:
        search: The search.
        study: Its study.

    Returns:
        Plain values: `shapes` (every shape that was tried, in the order of its trials, with parameters, latency, loss
        and reward as far as they are known, its `state` and the `reason` for it), `best` (of the highest reward),
        `front` (trials that no other beats in loss and latency, the fastest first), `recipe` (the searched run with
        the best shape), `cost`, `identity` and what it ran on.

    Raises:
        TrainingError: if no shape came to a loss; the study is kept.
    """
    request, plan = search.request, search.plan
    trials = study.get_trials(deepcopy=False)
    settled = read_shapes(trials).settled
    shapes = [shape_fields(point, trial) for point, trial in settled.items()]
    trained = [shape for shape in shapes if shape["state"] == "trained"]
    if not trained:
        raise TrainingError(_nothing_trained(shapes, shown(request.proxy.place)))
    front = [trained[index] for index in pareto_front([(one["loss"], one["latency_share"]) for one in trained])]
    best = max(trained, key=lambda one: one["reward"])
    chosen = next(point for point, trial in settled.items() if trial.number == best["trial"])
    return {
        "kind": KIND,
        "name": request.proxy.name,
        "status": "finished",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "storage": shown(request.proxy.place),
        "identity": study.user_attrs[IDENTITY],
        "teacher": {
            "name": plan.teacher_choice.title,
            "shape": str(plan.teacher),
            "latency_ms": median(one["teacher_ms"] for one in trained),
        },
        "methods": list(dict.fromkeys(stage.method["name"] for stage in plan.recipe.stages)),
        "space": {**search.space.description, "shapes": len(search.space.shapes)},
        "limits": {"parameters": request.limits.parameters, "latency_share": request.limits.latency_share},
        "latency": {**search.latency.identity, "seconds": search.latency.seconds},
        "loss": {"kind": search.loss, "untrained": study.user_attrs[UNTRAINED_LOSS]},
        "share": request.proxy.share,
        "sampler": request.sampler,
        "cuts": search.cuts,
        "shapes": shapes,
        "best": best,
        "front": [one["trial"] for one in front],
        "recipe": with_shape(request.proxy.recipe, chosen).model_dump(mode="json", exclude_unset=True),
        "cost": _cost(trials, shapes),
        "versions": {**versions(), "optuna": metadata.version("optuna")},
        "git_commit": git_commit(),
        "hardware": hardware(),
    }


def shape_fields(point: ShapePoint, trial: FrozenTrial) -> dict[str, Any]:
    """Return what a record tells of a shape whose trial is settled."""
    attributes, latency = trial.user_attrs, latency_of(trial)
    state, reason = _state(trial)
    return {
        "trial": trial.number,
        "layers": point.layers,
        "hidden": point.hidden,
        "heads": point.heads,
        "ffn": point.ffn_width,
        "parameters": attributes.get(PARAMETERS),
        "latency_share": None if latency is None else latency.share,
        "latency_ms": None if latency is None else latency.student_ms,
        "teacher_ms": None if latency is None else latency.teacher_ms,
        "threads": None if latency is None else latency.threads,
        "note": BUSY if latency is not None and latency.busy else None,
        "loss": attributes.get(LOSS),
        "reward": trial.value if state == "trained" else None,
        "steps": attributes.get(STEPS),
        "rewards_on_the_way": {str(step): value for step, value in trial.intermediate_values.items()},
        "state": state,
        "reason": reason,
        "training_seconds": attributes.get(SECONDS),
    }


def _state(trial: FrozenTrial) -> tuple[str, str | None]:
    for key, state in ((REFUSED, "refused"), (CUT, "cut")):
        if key in trial.user_attrs:
            return state, trial.user_attrs[key]
    if trial.user_attrs.get(DIVERGED):
        return "diverged", "its loss is no finite number"
    return "trained", None


def _cost(trials: Sequence[FrozenTrial], shapes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What it took, with what was lost."""
    states = [shape["state"] for shape in shapes]
    failed = [trial for trial in trials if trial.state == TrialState.FAIL and SAME_AS not in trial.user_attrs]
    return {
        **{state: states.count(state) for state in ("trained", "cut", "diverged", "refused")},
        "failed": len(failed) - states.count("diverged"),
        "training_seconds": round(sum(trial.user_attrs.get(SECONDS, 0.0) for trial in trials), 1),
    }


def _nothing_trained(shapes: Sequence[Mapping[str, Any]], place: str) -> str:
    slow = [shape for shape in shapes if shape["state"] == "refused" and shape["latency_share"] is not None]
    if shapes and len(slow) == sum(shape["state"] == "refused" for shape in shapes) == len(shapes):
        least = min(shape["latency_share"] for shape in slow)
        return (
            f"No shape is within --max-latency-share: the fastest takes {least:.3f} of the teacher's latency; raise "
            "the limit, or list smaller sizes, under a new --name."
        )
    return (
        f"No shape came to a loss: {', '.join(dict.fromkeys(shape['reason'] or '' for shape in shapes))}; lower the "
        f"learning rate, under a new --name. The trials are kept in {place}."
    )
