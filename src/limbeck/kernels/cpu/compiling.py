"""Kernels in C, compiled at first use where a C compiler is found.

They are C without any header of Python or PyTorch, so a compiler (`$CC`, or `cc`) takes a second; libraries are kept in
limbeck's cache, by source, compiler and processor.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

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


def compile_kernel(
    source: Path, read: Callable[[ctypes.CDLL], T], is_right: Callable[[T], bool], options: Sequence[str] = ()
) -> T | str:
    """Compile a kernel, or find it in the cache.

    Args:
        source: Its source.
        read: Takes its functions from the library.
        is_right: Whether they compute the right thing, by a small case.
        options: Of the compiler, beside `OPTIONS`.

    Returns:
        What was read; or why there is none, which is no error.
    """
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    processor = Path("/proc/cpuinfo")
    if (found := shutil.which(compiler[0])) is None or not processor.is_file():
        return f"no C compiler '{compiler[0]}'" if found is None else "it is compiled on Linux only"
    traits = sorted({line for line in processor.read_text().splitlines() if line.startswith(("flags", "Features"))})
    options = (*OPTIONS, *options)
    texts = [file.read_text(encoding="utf-8") for file in (source, *sorted(source.parent.glob("*.h")))]
    key = fingerprint([texts, compiler, os.path.realpath(found), options, traits])
    library = default_cache_dir() / "kernels" / f"{source.stem}-{key}.so"
    try:
        if not library.is_file():
            library.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(library, durable=False, shared=True) as partial_file:
                command = [*compiler, *options, str(source), "-o", str(partial_file)]
                subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        made = read(ctypes.CDLL(str(library)))
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        return f"'{compiler[0]}' did not compile it ({type(error).__name__})"
    return made if is_right(made) else f"what '{compiler[0]}' made of it computes something else"


def read_function(library: ctypes.CDLL, name: str, *arguments: Any) -> Callable[..., None]:
    """Take a function that returns nothing from a library.

    Args:
        library: The library.
        name: Of the function.
        *arguments: Their types.

    Raises:
        AttributeError: if the library has none of that name.
    """
    function = getattr(library, name)
    function.argtypes = arguments
    function.restype = None
    found: Callable[..., None] = function
    return found


def whole_vectors(size: int) -> int:
    """Round a number of numbers up to whole vectors."""
    return -(-size // LANES) * LANES
