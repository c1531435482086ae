"""Pickled weights as safetensors: read in a process apart, which may run out of memory or time but runs no code."""

import re
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import save_file

from limbeck.core.workers import run_tasks
from limbeck.errors import ModelError

MOST_SECONDS = 1800.0
"""Longest time that the reading may take; 10 GB take a minute or two."""
_MEMORY_OVER = 2 * 2**30
_MEMORY_PER_BYTE = 4
# What torch calls that it will not make.
_ASKS_FOR = re.compile(r"(?:GLOBAL|global|class|function) ([A-Za-z_][\w.]*\.[\w.]+)")


def convert_pickles(files: Sequence[Path], target: Path, *, seconds: float = MOST_SECONDS) -> None:
    """Write the tensors of pickled files as one file of safetensors.

    The pickles are read with `torch.load(weights_only=True)`, in another process that is ended when it needs more
    memory than four times the files and 2 GiB, or too long.

    Args:
        files: The pickles, which hold parts of one state.
        target: The file to write.
        seconds: Longest time.

    Raises:
        ModelError: for pickles that hold anything but named tensors, are damaged, or need too much.
    """
    problems: list[str | None] = []
    end = time.monotonic() + seconds

    def watch() -> None:
        if time.monotonic() > end:
            raise ModelError(f"Reading '{files[0]}' took more than {seconds:g} s; it was stopped.")

    task = ([str(file) for file in files], str(target))
    run_tasks(_convert_limited, [task], workers=1, ended=lambda _, problem: problems.append(problem), watch=watch)
    if problems[0] is not None:
        raise ModelError(problems[0] if str(files[0].parent) in problems[0] else f"'{files[0]}': {problems[0]}")


def _convert_limited(task: tuple[list[str], str], send: Any) -> None:
    warnings.simplefilter("ignore")  # What torch says of strange files is said in one line, if they are refused.
    files, target = [Path(file) for file in task[0]], Path(task[1])
    size = sum(file.stat().st_size for file in files)
    if sys.platform.startswith("linux"):
        allowed = psutil.Process().memory_info().vms + _MEMORY_PER_BYTE * size + _MEMORY_OVER
        with suppress(ValueError, OSError):  # A lower limit is set already.
            resource.setrlimit(resource.RLIMIT_AS, (allowed, resource.getrlimit(resource.RLIMIT_AS)[1]))
    convert(files, target)


def convert(files: Sequence[Path], target: Path) -> None:
    """Do what `convert_pickles` does, in this process and without limits.

    Raises:
        ModelError: for pickles that hold anything but named tensors, or are damaged.
    """
    found: dict[str, torch.Tensor] = {}
    for file in files:
        found |= _read(file)
    size = sum(file.stat().st_size for file in files)
    described = sum(tensor.numel() * tensor.element_size() for tensor in found.values())
    if described > _MEMORY_PER_BYTE * size:
        raise ModelError(f"'{files[0]}' describes {described:,} bytes of tensors but has {size:,}; it is not read.")
    # Tied weights share memory, which safetensors does not know; a view may lie in a far larger storage.
    save_file(
        {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in found.items()}, str(target)
    )


def _read(file: Path) -> dict[str, torch.Tensor]:
    try:
        found = torch.load(str(file), map_location="cpu", weights_only=True)
    except Exception as error:  # Damage has many kinds, and so has what is refused.
        text = " ".join(str(error).split())
        if isinstance(error, MemoryError) or "allocate memory" in text or "DefaultCPUAllocator" in text:
            raise ModelError(f"'{file}' needs more memory than a file of its size should; it is not read.") from None
        if asked := _ASKS_FOR.search(text):
            raise ModelError(
                f"'{file}' asks for '{asked[1][:80]}', which weights never need; it is not read."
            ) from None
        raise ModelError(f"'{file}' holds more than tensors, or is damaged; it is not read.") from None
    named = isinstance(found, dict) and found and all(isinstance(name, str) for name in found)
    if not named or not all(_is_plain(tensor) for tensor in found.values()):
        raise ModelError(f"'{file}' holds something other than named tensors, such as a whole training checkpoint.")
    return dict(found)


def _is_plain(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and not tensor.is_quantized
