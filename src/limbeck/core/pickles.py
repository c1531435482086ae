"""Pickled weights as safetensors: read in a process apart, which may run out of memory or time but runs no code."""

import re
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import save_file

from limbeck.core.workers import run_tasks
from limbeck.errors import ModelError

MOST_SECONDS = 1800.0
"""Longest time that the reading may take; 10 GB take a minute or two."""
_MEMORY_PER_BYTE = 4
"""Bytes of memory that the reading may take for each byte of the files."""
_MEMORY_OVER = 2 * 2**30
"""Bytes of memory that it may take in addition."""
# The names in torch's messages on pickles that would make an object.
_REFUSED_NAME = re.compile(r"(?:GLOBAL|global|class|function) ([A-Za-z_][\w.]*\.[\w.]+)")
_LONGEST_NAME = 80
"""Most characters of the name of a class in a message."""


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
    problems: list[str] = []
    deadline = time.monotonic() + seconds

    def note_problem(_task: _Task, problem: str | None) -> None:
        if problem is not None:
            problems.append(problem)

    def check_time() -> None:
        if time.monotonic() > deadline:
            raise ModelError(
                f"Reading '{files[0]}' took more than {seconds:g} s, so reading was stopped; the file may be "
                "damaged or malicious."
            )

    run_tasks(_convert_limited, [_Task(tuple(files), target)], workers=1, ended=note_problem, watch=check_time)
    if not problems:
        return
    # `convert` names the file in its errors. An error of the process itself, such as its death, does not.
    problem = problems[0]
    names_file = str(files[0].parent) in problem
    if not names_file:
        problem = f"'{files[0]}': {problem}"
    raise ModelError(problem)


@dataclass(frozen=True)
class _Task:
    """The pickles to be read, and the file to be written."""

    files: tuple[Path, ...]
    target: Path


def _convert_limited(task: _Task, _send: Any) -> None:
    """Convert pickles in a process whose memory is limited."""
    # Torch's warnings on strange files are one line of an error, if the files are refused.
    warnings.simplefilter("ignore")
    if sys.platform.startswith("linux"):
        memory_now = psutil.Process().memory_info().vms
        most_memory = memory_now + _MEMORY_PER_BYTE * _stored_size(task.files) + _MEMORY_OVER
        _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
        # Setting the limit fails where the system has a lower one already.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (most_memory, hard_limit))
    convert(task.files, task.target)


def convert(files: Sequence[Path], target: Path) -> None:
    """Write the tensors of pickled files as safetensors, in this process and without limits.

    Raises:
        ModelError: for pickles that hold anything but named tensors, or are damaged.
    """
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        tensors |= _read(file)

    # A small file may describe a huge tensor: a view with strides of 0 repeats the few values of its storage.
    stored = _stored_size(files)
    described = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if described > _MEMORY_PER_BYTE * stored:
        raise ModelError(
            f"'{files[0]}' describes {described:,} bytes of tensors but holds only {stored:,} bytes, as a file "
            "made to fill the memory does; it is not read."
        )

    # Safetensors refuses tensors that share memory, such as tied weights; a clone also drops the rest of a view's
    # storage.
    copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    save_file(copies, str(target))


def _read(file: Path) -> dict[str, torch.Tensor]:
    """Read the named tensors of a pickle, and refuse whatever else it holds."""
    try:
        content = torch.load(str(file), map_location="cpu", weights_only=True)
    except Exception as error:  # Damage has many kinds, and so has refused content.
        raise _reading_error(file, error) from None
    is_filled_mapping = isinstance(content, dict) and len(content) > 0
    holds_tensors = is_filled_mapping and all(_is_named_tensor(name, value) for name, value in content.items())
    if not holds_tensors:
        raise ModelError(
            f"'{file}' holds something other than named tensors, perhaps a whole training checkpoint; give a file "
            "of weights alone (a state_dict)."
        )
    return dict(content)


def _reading_error(file: Path, error: Exception) -> ModelError:
    """Return the error for a pickle that torch cannot read or refuses."""
    text = " ".join(str(error).split())
    needs_memory = "allocate memory" in text or "DefaultCPUAllocator" in text
    if isinstance(error, MemoryError) or needs_memory:
        return ModelError(f"'{file}' needs more memory than a file of its size should; it is not read.")
    refused = _REFUSED_NAME.search(text)
    if refused is not None:
        name = refused[1][:_LONGEST_NAME]
        return ModelError(f"'{file}' asks for '{name}', which weights never need; it is not read.")
    return ModelError(f"'{file}' holds more than tensors, or is damaged; it is not read.")


def _is_named_tensor(name: object, value: object) -> bool:
    """Whether an item of a state is a dense tensor with a name, which safetensors can hold."""
    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and not value.is_quantized


def _stored_size(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files)
