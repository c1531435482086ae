"""Kernels in C, compiled at first use where a C compiler is found.

They include no header of Python or PyTorch, so that a compiler (`$CC`, or `cc`) takes about a second. The compiled
libraries are kept in limbeck's cache, under a name that follows from source, compiler and processor.
"""

import ctypes
import math
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from limbeck.core.files import atomic_file
from limbeck.core.hashing import fingerprint
from limbeck.core.paths import default_cache_dir

T = TypeVar("T")

LANES = 16
"""Numbers in a vector of `vectors.h`."""
TILE = 4
"""Rows that its products take at once."""
OPTIONS = ("-O3", "-march=native", "-fPIC", "-shared")
_SECONDS = 120
"""Most seconds that a compilation may take."""
_PROCESSOR = Path("/proc/cpuinfo")


def compile_kernel(source: Path, read: Callable[[ctypes.CDLL], T], is_right: Callable[[T], bool]) -> T | str:
    """Compile a kernel, or find it in the cache.

    Args:
        source: File of its source.
        read: Finds the functions in the library.
        is_right: Returns whether the functions give the right result for a small case.

    Returns:
        The functions; or the reason why there are none, which is no error.
    """
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    compiler = shutil.which(command[0])
    if compiler is None:
        return f"no C compiler '{command[0]}'"
    if not _PROCESSOR.is_file():
        return "it is compiled on Linux only"

    # A library is of one version of the sources, one compiler and one kind of processor.
    sources = [source, *sorted(source.parent.glob("*.h"))]
    texts = [path.read_text(encoding="utf-8") for path in sources]
    lines = _PROCESSOR.read_text().splitlines()
    traits = sorted({line for line in lines if line.startswith(("flags", "Features"))})
    key = fingerprint([texts, command, os.path.realpath(compiler), OPTIONS, traits])
    library = default_cache_dir() / "kernels" / f"{source.stem}-{key}.so"
    try:
        if not library.is_file():
            library.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(library, durable=False, shared=True) as partial_file:
                compilation = [*command, *OPTIONS, str(source), "-o", str(partial_file)]
                subprocess.run(compilation, check=True, capture_output=True, timeout=_SECONDS)
        functions = read(ctypes.CDLL(str(library)))
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        return f"'{command[0]}' did not compile it ({type(error).__name__})"
    # The check computes gradients. The first call may come from a forward pass in inference mode, which has none.
    with torch.inference_mode(False):
        is_right_here = is_right(functions)
    if not is_right_here:
        return f"what '{command[0]}' made of it computes something else"
    return functions


def whole_vectors(size: int) -> int:
    """Round a number of numbers up to whole vectors."""
    return math.ceil(size / LANES) * LANES
