"""This machine: memory of the process, versions and hardware for records, and its devices."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from limbeck.core.workers import available_cores
from limbeck.errors import RecipeError
from limbeck.version import __version__

if TYPE_CHECKING:
    import torch

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Blocks below this stay, at most so much of them. Larger ones would leave gaps that nothing fits into.
_KEPT_BLOCK, _KEPT = 64 << 20, 2047 << 20
# What older versions of glibc allow.
_OLD_LIMIT = 32 << 20


def keep_freed_memory() -> bool:
    """Let malloc keep what is freed, so that the same large tensors of every step cost no new pages.

    By default glibc gives large blocks back to the system at once and takes them anew, and the system clears every page
    again: a tenth of a training step on a CPU, a quarter of some kernels. Blocks of 64 MiB and more still come and go.
    It holds for the whole process, and overrides the environment variables of malloc.

    Returns:
        Whether it was set; False where the system's malloc is not glibc's.
    """
    mallopt = _function("mallopt")
    if mallopt is None:
        return False
    kept = mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK) or mallopt(_M_MMAP_THRESHOLD, _OLD_LIMIT)
    return bool(kept and mallopt(_M_TRIM_THRESHOLD, _KEPT))


def release_freed_memory() -> None:
    """Give what is freed back to the system once, so that what a measurement takes next cannot come from it."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Any:
    """A function of the C library; None where there is none of that name."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None


_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "safetensors", "numpy", "pydantic")


def versions() -> dict[str, str]:
    """Versions of limbeck, Python and the packages that results depend on."""
    found = {"limbeck": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def git_commit() -> str | None:
    """The commit of the limbeck checkout in use, with `-dirty` after local changes; None outside of one."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed package may lie inside somebody else's repository.
    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    commit = git("rev-parse", "HEAD")
    return None if commit is None else commit + ("-dirty" if git("status", "--porcelain", "-uno") else "")


def hardware() -> dict[str, Any]:
    """Processor, cores, memory and accelerators."""
    import torch

    accelerators = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "device": accelerators[0] if accelerators else "cpu",
        "accelerators": accelerators,
        "cpu": _cpu_name(),
        "cores": available_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def peak_memory_bytes() -> int:
    """Highest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_device_memory_bytes() -> int | None:
    """Highest memory allocated on the accelerator, or None without one."""
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None


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
