"""Teachers in int8: the linear maps of their blocks compute by `kernels/int8_linear.py`, and can be put back."""

import copy
from collections.abc import Iterable, Iterator
from functools import partial

import torch
from torch import nn
from transformers import PreTrainedConfig

from limbeck.errors import ModelError
from limbeck.kernels.int8_linear import int8_linear, int8_problem, pack, quantise
from limbeck.models.families import blocks
from limbeck.models.heads import model_class
from limbeck.models.quiet import quiet


def quantise_linear_maps(modules: Iterable[nn.Module]) -> int:
    """Let the linear maps inside some modules compute in int8, see `kernels/int8_linear.py`.

    Each stays the module that it was, with its float weight and its hooks; only its forward is another.

    Args:
        modules: For example the blocks of a teacher, on a CPU and frozen.

    Returns:
        How many were quantised.
    """
    count = 0
    for linear in _linear_maps(modules):
        if "forward" not in linear.__dict__:
            weight = pack(*quantise(linear.weight.detach()))
            bias = None if linear.bias is None else linear.bias.detach().float()
            linear.__dict__["forward"] = partial(int8_linear, weight=weight, bias=bias)
            count += 1
    return count


def restore_linear_maps(modules: Iterable[nn.Module]) -> None:
    """Let quantised maps compute with their own weights again."""
    for linear in _linear_maps(modules):
        linear.__dict__.pop("forward", None)


def check_quantisable(name: str, config: PreTrainedConfig) -> None:
    """Refuse a teacher that cannot be quantised on this machine; a model of no size is built for it.

    Args:
        name: The teacher, as the user named it.
        config: Its configuration.

    Raises:
        ModelError: for a CPU without int8 products, and a model with a block that has no linear map.
    """
    if (problem := int8_problem()) is not None:
        raise ModelError(f"The teacher cannot run in int8, since {problem}; leave out teacher.precision.")
    with torch.device("meta"), quiet():
        model = model_class(config)(copy.deepcopy(config))
    if not all(any(_linear_maps([block])) for block in blocks(model)):
        raise ModelError(
            f"The teacher '{name}' cannot run in int8, since its blocks ('{config.model_type}') are not made of "
            "torch.nn.Linear; leave out teacher.precision."
        )


def _linear_maps(modules: Iterable[nn.Module]) -> Iterator[nn.Linear]:
    """Go through the plain linear maps; those of a subclass may compute otherwise."""
    for module in modules:
        yield from (part for part in module.modules() if type(part) is nn.Linear)
