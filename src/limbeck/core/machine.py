"""This machine as records name it: versions of packages, the commit in use, processor and accelerators."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from limbeck.version import __version__

_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "safetensors", "numpy", "pydantic")
"""Packages beside limbeck on which results depend."""


def versions() -> dict[str, str]:
    """Versions of limbeck, Python and the packages that results depend on."""
    versions_by_name = {"limbeck": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions_by_name[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions_by_name


@cache
def git_commit() -> str | None:
    """The commit of the limbeck checkout in use, with `-dirty` after local changes; None outside of one."""
    # An installed package may lie inside somebody else's repository, which does not know this file.
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    has_changes = bool(_git("status", "--porcelain", "-uno"))
    if has_changes:
        return f"{commit}-dirty"
    return commit


def _git(*arguments: str) -> str | None:
    """Return the output of git in the folder of this file; None where git fails or there is none."""
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return done.stdout.strip()


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
    """Return the processor's model as Linux names it, else its architecture."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.startswith("model name"):
                return value.strip()
    return platform.processor() or platform.machine()


def available_cores() -> int:
    """Return the number of CPU cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
