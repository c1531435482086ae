"""`optim_args: moments=bfloat16`: an optimizer whose moments are kept in bfloat16."""

from collections.abc import Mapping
from typing import Any

from limbeck.errors import RecipeError
from limbeck.recipe.training_fields import DEFAULTS

OPTIMIZERS = ("adamw_torch_fused", "adamw_torch")
"""Optimizers that have their moments in bfloat16 if they are asked to."""


def keeps_bfloat16_moments(optim_args: object) -> bool:
    """Whether arguments of an optimizer, `NAME=VALUE` each, ask for moments in bfloat16."""
    return _read_moments(optim_args) == "bfloat16"


def check_moments(training: Mapping[str, Any], place: str) -> None:
    """Refuse another format of moments, and arguments that bfloat16 does not go with.

    Args:
        training: The arguments of a stage.
        place: Where they stand, for the message.

    Raises:
        RecipeError: for either.
    """
    optim_args = training.get("optim_args")
    moments = _read_moments(optim_args)
    if moments is None:
        return
    if moments != "bfloat16":
        raise RecipeError(
            f"{place}.optim_args: moments is '{moments}'; give moments=bfloat16, or leave it out for float32."
        )
    optimizer = training.get("optim", DEFAULTS["optim"])
    optimizer = getattr(optimizer, "value", optimizer)
    if optimizer not in OPTIMIZERS:
        raise RecipeError(
            f"{place}.optim_args: moments=bfloat16 is for {' and '.join(OPTIMIZERS)}, not for '{optimizer}': "
            "leave it out."
        )
    if "," in str(optim_args):
        raise RecipeError(f"{place}.optim_args is '{optim_args}', but '{optimizer}' takes moments=bfloat16 alone.")
    if training.get("fsdp"):
        raise RecipeError(f"{place}.optim_args: moments=bfloat16 cannot be sharded by fsdp: leave one out.")


def _read_moments(optim_args: object) -> str | None:
    """The value of `moments` among the arguments of an optimizer."""
    if not isinstance(optim_args, str):
        return None
    for pair in optim_args.replace(" ", "").split(","):
        name, _, value = pair.partition("=")
        if name == "moments":
            return value
    return None
