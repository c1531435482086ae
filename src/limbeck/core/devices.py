"""Devices of this machine: their names, choosing one, and what it can do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from limbeck.errors import RecipeError

if TYPE_CHECKING:
    import torch

_DEVICE_TYPES = ("cpu", "cuda", "mps", "xpu", "hpu", "npu", "mlu", "musa", "xla")
"""Types of torch's devices, for `TYPE` or `TYPE:INDEX`."""
# Accelerate's variable that keeps all work on the CPU.
_CPU_ALONE = "ACCELERATE_USE_CPU"
_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


def check_device(name: str) -> None:
    """Refuse a name that no device can have.

    Torch is not imported, so it is not known here whether the device is there: `choose_device` checks that.

    Raises:
        RecipeError: for such a name.
    """
    if name == "auto":
        return
    device_type, colon, index = name.partition(":")
    is_number = index.isascii() and index.isdigit()
    has_good_index = not colon or is_number
    if device_type not in _DEVICE_TYPES or not has_good_index:
        raise RecipeError(
            f"This machine has no device '{name}'; use cpu, or leave --device out, which takes the accelerator if "
            "there is one."
        )


@contextmanager
def computing_on(name: str) -> Iterator[str]:
    """Send all work to a device inside the block, also that of processes that are started there.

    It sets environment variables, so it has to be entered before torch looks for devices. What is set, and the device
    that is looked for:

    - `auto`: nothing is set, and none is looked for.
    - `cpu`: accelerate stays on the CPU. None is looked for, since a CPU is always there; only `cpu:1` is refused.
    - `cuda`: nothing is set, and a GPU is looked for.
    - `cuda:1`: the other GPUs are hidden, and a GPU is looked for among the one that is left.
    - Any other name, such as `mps`: nothing is set, and the device is looked for by its whole name.

    Args:
        name: The name, as in `choose_device`.

    Yields:
        The name of the device inside the block, which is the name without its number: `"cuda"` for `"cuda:1"`, which is
            then the only GPU that is visible. `"auto"` stays `"auto"`.

    Raises:
        RecipeError: if there is no such device here, or it cannot be chosen by its number.
    """
    check_device(name)
    # "auto" and "cpu" are their own types: there is nothing behind a colon.
    device_type, _, _ = name.partition(":")
    changes = _variables_of(name)
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        # The device has to be there, which needs no look for "auto" and "cpu". A look imports torch.
        if device_type == "cuda":
            # With the other GPUs hidden, the chosen one is just "cuda".
            _find_device("cuda", written=name)
        elif name not in ("auto", "cpu"):
            _find_device(name, written=name)
        yield device_type
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def has_accelerator() -> bool:
    """Whether there is an accelerator to use; `computing_on("cpu")` and accelerate's variable keep work on the CPU."""
    import torch

    uses_cpu_alone = os.environ.get(_CPU_ALONE, "").lower() in ("1", "true", "yes", "on")
    return torch.accelerator.is_available() and not uses_cpu_alone


def choose_device(name: str) -> torch.device:
    """Return the device that is named; `"auto"` is the accelerator where there is one.

    Args:
        name: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:1"` …

    Raises:
        RecipeError: if there is no such device here.
    """
    import torch

    if name != "auto":
        return _find_device(name, written=name)
    if has_accelerator():
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None:
            return accelerator
    return torch.device("cpu")


def device_name(device: torch.device) -> str:
    """Return the model of a GPU, or the type of another device."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return device.type


def synchronise(device: torch.device) -> None:
    """Wait until an accelerator has finished its work; a CPU already has."""
    import torch

    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def bf16_is_fast() -> bool:
    """Whether this machine computes in bfloat16 natively: a GPU that supports it, or a CPU with AVX512-BF16 or AMX."""
    import torch

    if torch.cuda.is_available() and has_accelerator():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Torch has no public names for these two.
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _variables_of(name: str) -> dict[str, str]:
    """Return the environment variables that send work to a device; none for `auto` and for other accelerators.

    Raises:
        RecipeError: for the number of a device that cannot be chosen by number.
    """
    device_type, _, index = name.partition(":")
    if device_type == "cpu":
        return {_CPU_ALONE: "true"}
    if device_type == "cuda":
        return {_VISIBLE_GPUS: _gpu_at(int(index))} if index else {}
    is_first_device = not index or int(index) == 0
    if not is_first_device:
        raise RecipeError(
            f"--device {name} has a number, but only NVIDIA GPUs (cuda) are chosen by number; give --device "
            f"{device_type}."
        )
    return {}


def _gpu_at(index: int) -> str:
    """Return the value of `CUDA_VISIBLE_DEVICES` that leaves one of the GPUs that are visible now.

    Args:
        index: Its number among these. With a number that is too large the value is empty, which hides all GPUs.
    """
    visible = [gpu for gpu in os.environ.get(_VISIBLE_GPUS, "").split(",") if gpu.strip()]
    if not visible:
        return str(index)
    # With all GPUs hidden, the check that follows refuses the device as one that is not there.
    if index >= len(visible):
        return ""
    return visible[index]


def _find_device(name: str, *, written: str) -> torch.device:
    """Return a device of this machine.

    Args:
        name: The name of the device, as torch has it here.
        written: Its name as the user wrote it, for the message.

    Raises:
        RecipeError: if it is not there.
    """
    import torch

    # How many devices of each type there are.
    counts = {"cpu": 1}
    here = "cpu"
    accelerator = None
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None:
        counts[accelerator.type] = torch.accelerator.device_count()
        here = f"cpu or {accelerator.type}"

    refusal = RecipeError(f"There is no device '{written}' here; use {here}, or leave --device out.")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise refusal from None
    index = 0 if device.index is None else device.index
    if index >= counts.get(device.type, 0):
        raise refusal
    return device
