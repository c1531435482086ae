"""The weights of a trained module: saved and loaded, also where it is sharded over processes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, load_model, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FSDPModule

from limbeck.core.permissions import give_ordinary_mode


def whole_weights(module: nn.Module) -> dict[str, Tensor] | None:
    """Gather the state of a sharded module; every process has to ask, and gets all of it.

    Args:
        module: The module.

    Returns:
        Its state, each tensor once: a name that shares its tensor with an earlier one is left out. None of a module
        that is not sharded.
    """
    # Between a forward pass and a step its parameters may be whole all the same.
    if not isinstance(module, FSDPModule):
        return None
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()
    whole: Mapping[str, Any] = get_model_state_dict(module, options=StateDictOptions(full_state_dict=True))
    second_names = _second_names(module)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in whole.items() if name not in second_names}


def save_weights(module: nn.Module, path: Path, whole: Mapping[str, Tensor] | None) -> None:
    """Write a module's state as safetensors, weights that share memory once, under the first of their names.

    safetensors lists the other names in an order that differs from process to process, and so would the file.

    Args:
        module: The module.
        path: The file.
        whole: See `whole_weights`.
    """
    if whole is None:
        second_names = _second_names(module)
        whole = {name: tensor.contiguous() for name, tensor in module.state_dict().items() if name not in second_names}
    save_file(dict(whole), str(path), metadata={"format": "pt"})
    give_ordinary_mode([path])


def load_weights(module: nn.Module, path: Path) -> None:
    """Read the file of `save_weights` into a module; of a sharded module every process has to do it.

    Raises:
        RuntimeError: for weights of another module.
    """
    if not isinstance(module, FSDPModule):
        load_model(module, str(path), strict=True)
        return
    weights: dict[str, Any] = dict(load_file(str(path)))
    # Here a parameter has to be given under all of its names.
    for second_name, first_name in _second_names(module).items():
        if first_name in weights:
            weights[second_name] = weights[first_name]
    set_model_state_dict(module, weights, options=StateDictOptions(full_state_dict=True, strict=True))


def _second_names(module: nn.Module) -> dict[str, str]:
    """Return the further names of shared parameters, each with the first name of its parameter."""
    first_names: dict[int, str] = {}
    second_names: dict[str, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        first_name = first_names.setdefault(id(parameter), name)
        if first_name != name:
            second_names[name] = first_name
    return second_names
