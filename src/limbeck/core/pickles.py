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
# The names in torch's messages on pickles that would make an object.
_REFUSED_NAME = re.compile(r"(?:GLOBAL|global|class|function) ([A-Za-z_][\w.]*\.[\w.]+)")
_LONGEST_NAME = 80


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
    problem = problems[0]
    if problem is None:
        return
    names_file = str(files[0].parent) in problem
    raise ModelError(problem if names_file else f"'{files[0]}': {problem}")


def _convert_limited(task: tuple[list[str], str], _send: Any) -> None:
    # Torch's warnings on strange files are one line of an error, if the files are refused.
    warnings.simplefilter("ignore")
    names, target = task
    files = [Path(name) for name in names]
    if sys.platform.startswith("linux"):
        allowed = psutil.Process().memory_info().vms + _MEMORY_PER_BYTE * _stored_size(files) + _MEMORY_OVER
        _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
        with suppress(ValueError, OSError):  # A lower limit is set already.
            resource.setrlimit(resource.RLIMIT_AS, (allowed, hard_limit))
    convert(files, Path(target))


def convert(files: Sequence[Path], target: Path) -> None:
    """Write the tensors of pickled files as safetensors, in this process and without limits.

    Raises:
        ModelError: for pickles that hold anything but named tensors, or are damaged.
    """
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        tensors |= _read(file)

    # A view may stand for far more values than its storage has.
    stored = _stored_size(files)
    described = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if described > _MEMORY_PER_BYTE * stored:
        raise ModelError(f"'{files[0]}' describes {described:,} bytes of tensors but has {stored:,}; it is not read.")

    # Tied weights share memory, which safetensors does not know; a view may lie in a far larger storage.
    copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    save_file(copies, str(target))


def _read(file: Path) -> dict[str, torch.Tensor]:
    try:
        content = torch.load(str(file), map_location="cpu", weights_only=True)
    except Exception as error:  # Damage has many kinds, and so has refused content.
        raise _reading_error(file, error) from None
    if not isinstance(content, dict) or not content or not all(map(_is_named_tensor, content.items())):
        raise ModelError(f"'{file}' holds something other than named tensors, such as a whole training checkpoint.")
    return dict(content)


def _reading_error(file: Path, error: Exception) -> ModelError:
    text = " ".join(str(error).split())
    needs_memory = "allocate memory" in text or "DefaultCPUAllocator" in text
    if isinstance(error, MemoryError) or needs_memory:
        return ModelError(f"'{file}' needs more memory than a file of its size should; it is not read.")
    refused = _REFUSED_NAME.search(text)
    if refused is not None:
        name = refused[1][:_LONGEST_NAME]
        return ModelError(f"'{file}' asks for '{name}', which weights never need; it is not read.")
    return ModelError(f"'{file}' holds more than tensors, or is damaged; it is not read.")


def _is_named_tensor(item: tuple[object, object]) -> bool:
    name, tensor = item
    if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
        return False
    return tensor.layout == torch.strided and not tensor.is_quantized


def _stored_size(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files)
