"""The best step of a stage (`load_best_model_at_end`): which rows choose it, by which metric, and when to stop for it.

The names are those of `transformers`: `metric_for_best_model`, `greater_is_better` and `EarlyStoppingCallback`. The
metric is `loss`, a term of the loss, or a metric of the task on the development rows.
"""

from collections.abc import Sequence
from typing import Any

from transformers import EarlyStoppingCallback, TrainerCallback, TrainerState, TrainingArguments

from limbeck.errors import RecipeError, suggestion
from limbeck.recipe.stage_plan import StagePlan

_PREFIX = "eval_"
"""Prefix that `transformers` puts before names of metrics; a recipe may have it or leave it out."""


def prepare_best_step(
    plan: StagePlan, arguments: TrainingArguments, metrics: Sequence[str], *, evaluates: bool
) -> None:
    """Check the metric that chooses the best step, and set whether more of it is better, in place.

    The best step is the one whose weights the stage keeps (`load_best_model_at_end`).

    Args:
        plan: The stage.
        arguments: Its training arguments. Their `greater_is_better` is set, unless the recipe sets it.
        metrics: Metrics of the task that the student is scored by in training; none without development rows.
        evaluates: Whether there are rows that are measured in training.

    Raises:
        RecipeError: for a stage without such rows, and an unknown metric.
    """
    if not plan.spec.training.get("load_best_model_at_end"):
        return
    title = plan.spec.title
    if not evaluates:
        raise RecipeError(
            f"Stage '{title}' has load_best_model_at_end, but no rows by which to choose the best step: hold rows "
            "out (corpus.held_out), or give development rows (corpus.development)."
        )
    losses = ["loss", *(term.name for term in plan.terms)]
    known = [*losses, *metrics]
    metric = chosen_metric(arguments)
    if metric not in known:
        raise RecipeError(
            f"Stage '{title}': training.metric_for_best_model is '{metric}', which is not measured in training."
            f"{suggestion(metric, known)}"
        )
    # A loss is better the smaller it is, and a metric of a task the greater.
    if plan.spec.training.get("greater_is_better") is None:
        arguments.greater_is_better = metric not in losses


def chosen_metric(arguments: TrainingArguments) -> str:
    """Return the metric that chooses the best step, without a prefix."""
    return str(arguments.metric_for_best_model or "loss").removeprefix(_PREFIX)


def stopping_callbacks(
    plan: StagePlan, callbacks: Sequence[TrainerCallback | type[TrainerCallback]]
) -> list[TrainerCallback | type[TrainerCallback]]:
    """Return the callbacks of the user for a stage, with the early stopping that its recipe asks for.

    Args:
        plan: The stage.
        callbacks: The callbacks of the user. One for early stopping begins to count anew in every stage.
    """
    of_stage: list[TrainerCallback | type[TrainerCallback]] = []
    for callback in callbacks:
        # A new object of the same arguments begins to count anew.
        if isinstance(callback, EarlyStoppingCallback):
            callback = type(callback)(**callback.state()["args"])
        of_stage.append(callback)
    patience = plan.spec.training.get("early_stopping_patience")
    if patience is not None:
        threshold = float(plan.spec.training.get("early_stopping_threshold") or 0.0)
        of_stage.append(EarlyStoppingCallback(int(patience), threshold))
    return of_stage


def restore_counts(callbacks: Sequence[TrainerCallback], state: TrainerState) -> None:
    """Let early stopping count on from a checkpoint.

    Args:
        callbacks: The callbacks of the trainer.
        state: The state in the checkpoint.
    """
    stored = _stored_counts(state)
    stoppers = [callback for callback in callbacks if isinstance(callback, EarlyStoppingCallback)]
    # Callbacks have no names, so they are paired in their order. Since the checkpoint was written, early stopping may
    # have been added or taken out.
    for callback, counts in zip(stoppers, stored, strict=False):
        for name, value in counts["attributes"].items():
            setattr(callback, name, value)


def store_counts(callbacks: Sequence[TrainerCallback], state: TrainerState) -> None:
    """Write the counts of early stopping into a state that has earlier ones.

    Args:
        callbacks: The callbacks of the trainer.
        state: The state of a checkpoint.
    """
    stoppers = [callback for callback in callbacks if isinstance(callback, EarlyStoppingCallback)]
    # Paired as in `restore_counts`.
    for callback, counts in zip(stoppers, _stored_counts(state), strict=False):
        counts["attributes"] = callback.state()["attributes"]


def has_stopped(state: TrainerState) -> bool:
    """Whether early stopping had ended the training at a checkpoint.

    Args:
        state: The state in the checkpoint.
    """
    for counts in _stored_counts(state):
        count = counts["attributes"]["early_stopping_patience_counter"]
        if count >= counts["args"]["early_stopping_patience"]:
            return True
    return False


def _stored_counts(state: TrainerState) -> list[dict[str, Any]]:
    """Return what callbacks of early stopping left in a state, in their order.

    Each is a dictionary with the callback's `args` and `attributes`, as `EarlyStoppingCallback.state` returns it.
    """
    states: list[dict[str, Any]] = []
    # The keys are names of classes. Several callbacks of one class have a list.
    for state_or_list in state.stateful_callbacks.values():
        states += state_or_list if isinstance(state_or_list, list) else [state_or_list]
    return [each for each in states if "early_stopping_patience" in each.get("args", {})]
