"""Devices of this machine: their names, choosing one, and what it can do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from limbeck.errors import RecipeError

if TYPE_CHECKING:
    import torch


_KINDS_OF_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "npu", "mlu", "musa", "xla")


def check_device(name: str) -> None:
    """Refuse a name that is that of no device, without torch, which knows those of this machine; see `choose_device`.

    Raises:
        RecipeError: for such a name.
    """
    kind, colon, index = name.partition(":")
    if name != "auto" and (kind not in _KINDS_OF_DEVICES or (colon and not (index.isascii() and index.isdigit()))):
        raise RecipeError(
            f"There is no device '{name}'; use cpu, or leave --device out for the accelerator, if there is one."
        )


@contextmanager
def computing_on(name: str) -> Iterator[str]:
    """Send all work to a device, that of processes started meanwhile too; for before torch looks for devices.

    Args:
        name: As in `choose_device`.

    Yields:
        Its name meanwhile: `"cuda"` for `"cuda:1"`, beside which the other GPUs are hidden.

    Raises:
        RecipeError: if there is no such device here, or it cannot be chosen by its number.
    """
    check_device(name)
    kind, _, index = name.partition(":")
    if index.strip("0") and kind not in ("cpu", "cuda"):
        raise RecipeError(f"--device {name} cannot be chosen by its number; only NVIDIA GPUs can. Give {kind}.")
    changed = {"ACCELERATE_USE_CPU": "true"} if kind == "cpu" else {}
    if kind == "cuda" and index:
        listed = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
        changed["CUDA_VISIBLE_DEVICES"] = ",".join(listed[int(index) :][:1]) if listed else index
    before = {key: os.environ.get(key) for key in changed}
    os.environ.update(changed)
    try:
        if kind not in ("auto", "cpu") or index:
            _check_there("cuda" if kind == "cuda" else name, name)
        yield kind
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def has_accelerator() -> bool:
    """Whether there is an accelerator, and work is not kept on the CPU, as `computing_on` and accelerate do it."""
    import torch

    kept = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "on")
    return torch.accelerator.is_available() and not kept


def choose_device(name: str) -> torch.device:
    """Return the device that is named; `"auto"` is the accelerator where there is one.

    Args:
        name: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:1"` …

    Raises:
        RecipeError: if there is no such device here.
    """
    import torch

    if name == "auto":
        return (torch.accelerator.current_accelerator() if has_accelerator() else None) or torch.device("cpu")
    return _check_there(name, name)


def _check_there(name: str, called: str) -> torch.device:
    """Return a device of this machine, or refuse it by the name that the user called it."""
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
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
        raise RecipeError(f"There is no device '{called}' here; use {here}, or leave --device out.")
    return device


def device_name(device: torch.device) -> str:
    """Return the model of a GPU, or the kind of another device."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


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
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
