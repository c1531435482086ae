"""The weights of a trained module: saved and loaded, also where it is sharded over processes.

Parameters may have several names, as where the output layer is the table of word embeddings. Their weights are stored
once, under the first name; the further names are *second names*.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, load_model, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FSDPModule

from limbeck.core.permissions import give_ordinary_mode


def whole_weights(module: nn.Module) -> dict[str, Tensor] | None:
    """Gather the state of a sharded module; all processes must call this together, and each gets all of it.

    Args:
        module: The module.

    Returns:
        Its state without second names; None for a module that is not sharded.
    """
    if not isinstance(module, FSDPModule):
        return None
    # After a forward pass parts may still have gathered their parameters. They are sharded again, as the function below
    # expects.
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()
    whole: Mapping[str, Any] = get_model_state_dict(module, options=StateDictOptions(full_state_dict=True))
    second_names = _second_names(module)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in whole.items() if name not in second_names}


def save_weights(module: nn.Module, path: Path, whole: Mapping[str, Tensor] | None) -> None:
    """Write a module's state as safetensors, without second names.

    `safetensors.torch.save_model` would write the second names into the file too, in an order that differs from process
    to process.

    Args:
        module: The module.
        path: The file.
        whole: The state of a sharded module, see `whole_weights`; None for a module that is not sharded.
    """
    if whole is None:
        second_names = _second_names(module)
        whole = {name: tensor.contiguous() for name, tensor in module.state_dict().items() if name not in second_names}
    save_file(dict(whole), str(path), metadata={"format": "pt"})
    give_ordinary_mode([path])


def load_weights(module: nn.Module, path: Path) -> None:
    """Read the file of `save_weights` into a module; for a sharded module all processes must do this together.

    Raises:
        RuntimeError: for weights of another module.
    """
    if not isinstance(module, FSDPModule):
        load_model(module, str(path), strict=True)
        return
    weights: dict[str, Any] = dict(load_file(str(path)))
    # `set_model_state_dict` needs a parameter under all of its names.
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
