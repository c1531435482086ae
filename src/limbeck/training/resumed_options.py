"""Options of a call that continues a run: those by which it would become another run are refused by their own names.

The comparison of the recipes (`limbeck.training.run_identity`) refuses them too. But it names keys of a recipe, which
the user may never have written.
"""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from limbeck.core import paths, records
from limbeck.core.blocks import counted
from limbeck.errors import OutputError
from limbeck.recipe.overrides import apply_overrides
from limbeck.recipe.training_fields import DEFAULTS
from limbeck.training.changed_steps import can_change_steps, steps_of, title_of
from limbeck.training.kept_recipe import read_kept_recipe
from limbeck.training.measured_steps import MeasuredSteps

_SHAPE = re.compile(r"\d+(x\d+)?")
"""A student's shape in short."""


def check_resumed_options(
    folder: Path, options: Mapping[str, Any], *, overrides: str | Sequence[str] = (), by_own_recipe: bool
) -> None:
    """Refuse options that a run cannot take which has begun to train.

    Args:
        folder: The run's folder.
        options: The options of the call, by their names in Python.
        overrides: Values that are set in the recipe later. An option whose part of the recipe they change is left to
            the comparison of the recipes.
        by_own_recipe: Whether the run goes on by the recipe in its folder, since the call gives none.

    Raises:
        OutputError: for the first option that the run cannot take, with the run's own value and the way out.
    """
    recipe = read_kept_recipe(folder)
    run = records.load(records.Run, folder)
    overridden_parts = apply_overrides({}, overrides)
    refusal = None
    if "stages" not in overridden_parts:
        refusal = _refused_training(folder, recipe, options, is_finished=run.is_finished)
    if refusal is None and by_own_recipe and "method" in options:
        refusal = "--method would replace the stages of the run, but a resumed run keeps its own; leave --method out"
    if refusal is None:
        refusal = _refused_value(folder, recipe, options, overridden_parts)
    if refusal is None:
        return
    way_on = run.way_on(folder / paths.STUDENT)
    if run.is_finished and run.ended_early is not None:
        raise OutputError(f"{way_on}.")
    message = f"{refusal}, or start a new run: give another folder as --output."
    if run.is_finished:
        message += f" {way_on}."
    raise OutputError(message)


def _refused_value(
    folder: Path, recipe: Mapping[str, Any], options: Mapping[str, Any], overridden_parts: Mapping[str, Any]
) -> str | None:
    """The refusal of an option whose value is not the run's own; None where all are."""
    corpus = recipe.get("corpus") or {}
    student = recipe.get("student") or {}
    # The part of the recipe that an option changes, and the run's own value.
    own_values = {
        "seed": ("seed", recipe.get("seed")),
        "length": ("corpus", corpus.get("length")),
        "text_column": ("corpus", corpus.get("text_column")),
        "student": ("student", student.get("shape")),
        "learning_rate": ("stages", _learning_rate_other_than(options.get("learning_rate"), recipe)),
    }
    for name, (part, own_value) in own_values.items():
        if name not in options or part in overridden_parts:
            continue
        value = options[name]
        if own_value is None or str(value) == str(own_value):
            continue
        # Other students than shapes in short are compared with the whole recipe.
        if name == "student" and not (_is_short_shape(value) and _is_short_shape(own_value)):
            continue
        option = f"--{name.replace('_', '-')}"
        return (
            f"{option} is {_shown(value)}, but a resumed run keeps its own value, and the run in '{folder}' has "
            f"{_shown(own_value)}; leave {option} out"
        )
    return None


def _is_short_shape(student: Any) -> bool:
    """Whether a student is a shape such as `3` or `3x384`, and no model, path or mapping."""
    return isinstance(student, int | str) and _SHAPE.fullmatch(str(student)) is not None


def _learning_rate_other_than(rate: float | None, recipe: Mapping[str, Any]) -> float | None:
    """The first learning rate of a run's stages that is not the given one; None where all are."""
    for stage in recipe.get("stages") or []:
        own_rate = float((stage.get("training") or {}).get("learning_rate", DEFAULTS["learning_rate"]))
        if own_rate != rate:
            return own_rate
    return None


def _shown(value: Any) -> str:
    """A value as messages show it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _refused_training(
    folder: Path, recipe: Mapping[str, Any], options: Mapping[str, Any], *, is_finished: bool
) -> str | None:
    """The refusal of options that say how long a run trains; None where the run can take them.

    Other numbers of steps are possible where the stages count steps, see `limbeck.training.changed_steps`.
    """
    stages = recipe.get("stages") or []
    if not stages:
        return None
    minutes = options.get("minutes")
    steps = options.get("steps")
    # The run's own training.
    counts_steps = all(steps_of(stage) is not None for stage in stages)
    amounts = " and ".join(_amount_of(folder, number, stage) for number, stage in enumerate(stages, start=1))
    # A way out for the end of the messages.
    end_early = ""
    if not is_finished:
        end_early = f", end the run early with `limbeck finish {shlex.quote(str(folder))}`"

    if minutes is not None:
        return _refused_minutes(folder, stages, minutes, amounts=amounts, end_early=end_early)
    if steps == 0:
        return f"--steps 0 trains nothing, but the run in '{folder}' has begun; leave --steps out{end_early}"
    if steps is not None and not counts_steps:
        return (
            f"--steps can change a run only if it counts steps, but the run in '{folder}' trains for {amounts}; "
            f"leave --steps out{end_early}"
        )
    return None


def _refused_minutes(
    folder: Path, stages: Sequence[Mapping[str, Any]], minutes: float, *, amounts: str, end_early: str
) -> str | None:
    """The refusal of other minutes than the run's own; None for these.

    Args:
        folder: The run's folder.
        stages: The documents of its stages.
        minutes: The minutes that the call gives.
        amounts: How long the stages train, in words.
        end_early: A way out where the steps cannot change, with a comma before it; empty where the run is finished.
    """
    own_minutes = _minutes_of_run(folder, stages)
    if own_minutes is not None and math.isclose(own_minutes, minutes):
        return None
    way_out = end_early
    if all(can_change_steps(folder, number, stage) for number, stage in enumerate(stages, start=1)):
        way_out = ", give --steps to change it (not below the steps that are done)"
    return (
        f"--minutes cannot change for a run that has begun, and the run in '{folder}' trains for {amounts}; "
        f"leave --minutes out{way_out}"
    )


def _amount_of(folder: Path, number: int, stage: Mapping[str, Any]) -> str:
    """How long a stage trains, such as: 29 steps (0.2 minutes at 0.413 s a step, measured as the stage began)."""
    training = stage.get("training") or {}
    steps = steps_of(stage)
    if steps is not None:
        amount = counted(steps, "step")
        measured = _measured_steps(folder, number, stage)
        # The steps may have been changed since.
        if measured is not None and measured.max_steps == steps:
            amount += f" ({measured})"
        return amount
    if training.get("max_minutes") is not None:
        minutes = training["max_minutes"]
        return "1 minute" if minutes == 1 else f"{minutes:g} minutes"
    passes = training.get("num_train_epochs", DEFAULTS["num_train_epochs"])
    noun = "pass" if passes == 1 else "passes"
    return f"{passes:g} {noun} through the text"


def _minutes_of_run(folder: Path, stages: Sequence[Mapping[str, Any]]) -> float | None:
    """The minutes of all stages together, measured in steps or not yet; None where a stage had no minutes."""
    total = 0.0
    for number, stage in enumerate(stages, start=1):
        measured = _measured_steps(folder, number, stage)
        minutes = (stage.get("training") or {}).get("max_minutes")
        if measured is not None:
            minutes = measured.max_minutes
        if minutes is None:
            return None
        total += minutes
    return total


def _measured_steps(folder: Path, number: int, stage: Mapping[str, Any]) -> MeasuredSteps | None:
    """The steps that the minutes of a stage came to, by its number from 1; None where it had none."""
    return MeasuredSteps.read(folder / paths.STAGES / f"{number}-{title_of(stage)}")
