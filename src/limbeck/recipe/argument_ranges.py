"""What the numbers of a stage's training arguments must lie in."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from limbeck.errors import RecipeError


class _Range(NamedTuple):
    """What an argument must lie in; the least value may itself be excluded."""

    least: float
    most: float
    least_allowed: bool = True


_ANY = _Range(-1e15, 1e15)
_COUNT = _Range(1, 1e12)
_INTERVAL = _Range(0, 1e12, least_allowed=False)
_BETA = _Range(0, 0.999999)
# Beyond these no run makes sense, so that a slip of the keyboard costs no day of training.
_RANGES: dict[str, _Range] = {
    "learning_rate": _Range(0, torch.finfo(torch.float32).max, least_allowed=False),
    "per_device_train_batch_size": _Range(1, 2**20),
    "per_device_eval_batch_size": _Range(1, 2**20),
    "gradient_accumulation_steps": _Range(1, 1e6),
    "num_train_epochs": _Range(0, 1e6, least_allowed=False),
    "max_grad_norm": _Range(0, 1e9),
    "weight_decay": _Range(0, 1000),
    "warmup_steps": _Range(0, 1e12),
    "warmup_ratio": _Range(0, 1),
    "adam_beta1": _BETA,
    "adam_beta2": _BETA,
    "adam_epsilon": _Range(0, 1),
    "logging_steps": _INTERVAL,
    "eval_steps": _INTERVAL,
    "save_steps": _INTERVAL,
    "save_total_limit": _COUNT,
    "dataloader_num_workers": _Range(0, 1024),
}


def check_range(name: str, value: Any, place: str) -> None:
    """Refuse numbers that no run can use.

    Args:
        name: Of the argument.
        value: Of its type; what is no number is left alone.
        place: Where it stands, for the message.

    Raises:
        RecipeError: for a number out of its range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if name == "max_steps" and value != -1 and not _COUNT.least <= value <= _COUNT.most:
        raise RecipeError(f"{place} is {value}; give 1 or more, up to {_COUNT.most:,.0f}, or -1 to count in epochs.")
    least, most, allowed = _RANGES.get(name, _ANY)
    if not least <= value <= most or (value == least and not allowed):  # No comparison holds for NaN.
        raise RecipeError(
            f"{place} is {value}; give {'at least' if allowed else 'more than'} {least:g}, up to {most:g}."
        )
