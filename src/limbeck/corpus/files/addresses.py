"""Paths and addresses of files, local or remote: their suffixes, sizes and file systems."""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from limbeck.corpus.messages import first_line, safe_name
from limbeck.errors import CorpusError

FilePath: TypeAlias = Path | str
"""A path, or the address of a remote file."""

GLOB_CHARACTERS = frozenset("*?[")
COMPRESSIONS = (".gz", ".xz", ".zst")

UNKNOWN_SIZE = 2**62
"""Size assumed for a remote file whose server does not state one."""


def is_remote(path: FilePath) -> bool:
    """Whether `path` is the address of a remote file, such as `https://…` or `s3://…`."""
    return isinstance(path, str) and "://" in path


def as_path(path: FilePath) -> Path:
    """Return the path of a local file."""
    if isinstance(path, Path):
        return path  # Parsing it again would take as long as a system call.
    return Path(path)


def suffixes_of(path: FilePath) -> list[str]:
    """Return the suffixes of a file's name, in lower case; the query of an address is left out."""
    if is_remote(path):
        path_on_server = urlsplit(str(path)).path
        name = posixpath.basename(path_on_server)
    else:
        name = as_path(path).name
    # The result is that of `Path.suffixes`, which would take three times as long.
    if name.endswith("."):
        return []
    _, *suffixes = name.lstrip(".").lower().split(".")
    return [f".{suffix}" for suffix in suffixes]


def compression_of(path: FilePath) -> str:
    """Return the suffix among `COMPRESSIONS` that the name of a file ends with; empty where it ends with none."""
    suffixes = suffixes_of(path)
    if suffixes and suffixes[-1] in COMPRESSIONS:
        return suffixes[-1]
    return ""


def is_compressed(path: FilePath) -> bool:
    """Whether the name of a file ends in one of `COMPRESSIONS`."""
    return bool(compression_of(path))


def file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the name that it has there.

    Raises:
        Exception: of any type, since file systems come from many libraries; see `one_line_errors`.
    """
    import fsspec  # type: ignore[import-untyped]

    system, name = fsspec.core.url_to_fs(address)
    return system, name


def file_size(path: FilePath) -> int:
    """Return the stored size of a file in bytes; `UNKNOWN_SIZE` where a remote server does not state it.

    Raises:
        CorpusError: if the file cannot be reached.
    """
    try:
        if not is_remote(path):
            return as_path(path).stat().st_size
        system, name = file_system(str(path))
        return int(system.size(name) or UNKNOWN_SIZE)
    except Exception as error:  # Each file system raises other kinds.
        reason = getattr(error, "strerror", None) or first_line(error)
        raise CorpusError(f"Cannot read '{safe_name(path)}': {safe_name(reason)}.") from error


@contextmanager
def one_line_errors(failure: str) -> Iterator[None]:
    """Turn errors of a file system, or of the Hub's client, into one line.

    Args:
        failure: The first part of the message, which says what failed. The reason is put behind it.

    Raises:
        CorpusError: in place of any exception.
    """
    try:
        yield
    except Exception as error:  # Each file system and the Hub's client raise other kinds.
        raise CorpusError(f"{failure}: {safe_name(first_line(error)).removesuffix('.')}.") from error
