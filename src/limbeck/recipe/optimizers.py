"""The optimizer and the schedule of a stage, and a trial of them before the run begins."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from transformers import TrainingArguments

from limbeck.errors import RecipeError, shorten_error

_ARGUMENTS_OF_OPTIMIZER = {"optim", "optim_args", "lr_scheduler_type", "lr_scheduler_kwargs"}
"""Arguments that decide optimizer and schedule."""
_HOOKED_PREFIXES = ("galore", "apollo", "lomo", "adalomo", "layerwise")
"""Beginnings of the names of optimizers that update weights during the backward pass, or need names of layers."""
_SCHEDULES_WITHOUT_OPTIONS = ("constant", "constant_with_warmup")
"""Schedules that take no `lr_scheduler_kwargs`."""
SCHEDULES_BY_LOSS = ("reduce_lr_on_plateau", "greedy")
"""Schedules whose `step` takes the held-out loss."""
_TRIAL_STEPS = 1_000
"""Steps of the trial of a schedule. Mistakes in its options show whatever the number of steps."""


def check_optimizer(arguments: TrainingArguments, training: Mapping[str, Any]) -> None:
    """Refuse an optimizer or a schedule that cannot be made or used, by a trial on a parameter with one number.

    Args:
        arguments: The arguments of the training.
        training: Those among them that the recipe gives.

    Raises:
        RecipeError: naming the argument.
    """
    # The default ones need no trial, which would import `Trainer`; that takes seconds.
    if not training.keys() & _ARGUMENTS_OF_OPTIMIZER:
        return

    optimizer_name = arguments.optim.value
    if optimizer_name.startswith(_HOOKED_PREFIXES) or "layerwise" in optimizer_name:
        raise RecipeError(
            f"training.optim '{optimizer_name}' hooks into the layers of a single model, which does not work here; "
            "choose another optimizer, such as adamw_torch."
        )
    schedule_name = arguments.lr_scheduler_type.value
    if training.get("lr_scheduler_kwargs") and schedule_name in _SCHEDULES_WITHOUT_OPTIONS:
        raise RecipeError(
            f"training.lr_scheduler_kwargs has no effect on the schedule '{schedule_name}': leave it out."
        )
    _check_pairs(training.get("optim_args"))

    try:
        optimizer = _make_optimizer(arguments, takes_arguments=bool(training.get("optim_args")))
    except (ImportError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise RecipeError(f"training.optim '{optimizer_name}' cannot be made: {shorten_error(error)}") from None
    try:
        _try_schedule(arguments, optimizer)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise RecipeError(
            f"training.lr_scheduler_type '{schedule_name}' cannot be made: {shorten_error(error)}; correct "
            "training.lr_scheduler_kwargs."
        ) from None


def _check_pairs(optim_args: object) -> None:
    """Refuse options of an optimizer that are not `NAME=VALUE,NAME=VALUE`."""
    if optim_args is None or optim_args == "":
        return
    are_pairs = isinstance(optim_args, str) and all(pair.count("=") == 1 for pair in optim_args.split(","))
    if not are_pairs:
        raise RecipeError(
            f"training.optim_args is {optim_args!r}: give NAME=VALUE, separated by commas if there are several, or "
            "leave it out."
        )


def _make_optimizer(arguments: TrainingArguments, *, takes_arguments: bool) -> torch.optim.Optimizer:
    """Make the optimizer of a parameter with one number.

    Args:
        arguments: The arguments of the training.
        takes_arguments: Whether the recipe gives `optim_args`, which the optimizer has to read.

    Raises:
        RecipeError: if the optimizer reads none of its `optim_args`.
    """
    from transformers import Trainer

    optimizer_class, options = Trainer.get_optimizer_cls_and_kwargs(arguments)
    if takes_arguments:
        # An optimizer that is the same without them has ignored them.
        without_arguments = copy.copy(arguments)
        without_arguments.optim_args = None
        if Trainer.get_optimizer_cls_and_kwargs(without_arguments) == (optimizer_class, options):
            raise RecipeError(
                f"training.optim_args has no effect on the optimizer '{arguments.optim.value}', which takes no "
                "arguments: leave it out."
            )
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer: torch.optim.Optimizer = optimizer_class([parameter], **options)
    return optimizer


def _try_schedule(arguments: TrainingArguments, optimizer: torch.optim.Optimizer) -> None:
    """Run a schedule to its end, since some options are read only after the warm-up, or at the last step."""
    from transformers import get_scheduler

    schedule = get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        num_warmup_steps=1,
        num_training_steps=_TRIAL_STEPS,
        scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,
    )
    follows_loss = arguments.lr_scheduler_type.value in SCHEDULES_BY_LOSS
    for _ in range(_TRIAL_STEPS):
        optimizer.step()
        # A schedule that follows the loss is given one that stays the same.
        if follows_loss:
            schedule.step(1.0)
        else:
            schedule.step()
    if not all(math.isfinite(group["lr"]) for group in optimizer.param_groups):
        raise ValueError("the learning rate becomes a number that is not finite")
