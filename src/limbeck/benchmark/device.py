"""The device that is measured: chosen by name, and waited for."""

from __future__ import annotations

import torch

from limbeck.errors import RecipeError


def choose_device(name: str) -> torch.device:
    """Return the device that is named; `"auto"` is the accelerator where there is one.

    Args:
        name: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:1"` …

    Raises:
        RecipeError: if there is no such device here.
    """
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == "auto":
        return found or torch.device("cpu")
    device: torch.device | None
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    counts = {"cpu": 1}
    if found is not None:
        counts[found.type] = torch.accelerator.device_count()
    usable = device is not None and (device.index or 0) < counts.get(device.type, 0)
    if device is None or not usable:
        here = "cpu" if found is None else f"cpu or {found.type}"
        raise RecipeError(f"There is no device '{name}' here; use {here}, or leave --device out.")
    return device


def synchronise(device: torch.device) -> None:
    """Wait until an accelerator has done what it was given; a CPU has already."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
