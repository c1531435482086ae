"""Opening a file of this machine or of a remote one, unpacked, guarded, at any position."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeAlias, cast
from urllib.parse import urlsplit

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa

from limbeck.corpus.guarded_stream import DamagedError, GuardedStream, NotTextError
from limbeck.corpus.limits import JUDGED_BYTES, LARGEST_WHOLE
from limbeck.corpus.source_report import SourceReport, one_line
from limbeck.errors import CorpusError

FilePath: TypeAlias = Path | str
"""A path, or the address of a remote file."""

NOT_TEXT = "file not in UTF-8, passed over"
DAMAGED = "damaged file, read up to the damage"
_COMPRESSED = (".gz", ".zst")
_COLUMNS = ".parquet"
_SKIPPED_AT_ONCE = 2**20
UNKNOWN_SIZE = 2**62
"""What is taken for the bytes of a remote file that does not tell."""


def is_remote(path: FilePath) -> bool:
    """Whether `path` is the address of a remote file, such as `https://…` or `s3://…`."""
    return isinstance(path, str) and "://" in path


def suffixes_of(path: FilePath) -> list[str]:
    """Return the suffixes of a file's name, in lower case; what follows `?` in an address is no part of it."""
    name = PurePosixPath(urlsplit(path).path) if isinstance(path, str) and "://" in path else Path(path)
    return [suffix.lower() for suffix in name.suffixes]


def is_compressed(path: FilePath) -> bool:
    """Whether the name of a file ends in `.gz` or `.zst`."""
    return suffixes_of(path)[-1:] in ([".gz"], [".zst"])


@contextmanager
def open_file(path: FilePath, report: SourceReport, offset: int = 0) -> Iterator[BinaryIO]:
    """Open a file, unpacked; what is damaged ends the reading inside the `with` and is noted.

    Args:
        path: The file.
        report: Receives the damage.
        offset: Where to begin, in bytes of the unpacked content. A compressed file is unpacked up to there; another
            one is entered there.

    Raises:
        CorpusError: if the file cannot be read at all.
    """
    try:
        with _opened(path, offset) as stream:
            yield stream
    except GeneratorExit:  # The reader wants no more; at the interpreter's end the names below are gone.
        raise
    except NotTextError as error:
        report.note(NOT_TEXT, f"{path}: {error}")
    except (OSError, EOFError, zlib.error, pa.ArrowException, DamagedError) as error:
        # Refusals of the operating system have a number; the others come from the content.
        if isinstance(error, OSError) and error.errno is not None:
            raise CorpusError(f"Cannot read '{one_line(path)}': {error.strerror}.") from error
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        report.note(DAMAGED, f"{path}: {reason}")


@contextmanager
def _opened(path: FilePath, offset: int) -> Iterator[BinaryIO]:
    kinds = suffixes_of(path)
    with _raw(path) as raw:
        if not is_compressed(path) and _COLUMNS in kinds[-1:]:
            yield raw  # Read from its end, in places.
            return
        packed = raw if is_compressed(path) else None
        if not packed:
            raw.seek(offset)
        with _unpacked(raw, kinds[-1] if packed else "") as content:
            is_text = _COLUMNS not in kinds[-2:]
            guard = GuardedStream(content, packed=packed, is_text=is_text, from_start=bool(packed) or offset == 0)
            with io.BufferedReader(guard, buffer_size=2 * JUDGED_BYTES) as stream:
                if packed:
                    _skip(stream, offset)
                yield stream


@contextmanager
def _raw(path: FilePath) -> Iterator[BinaryIO]:
    if not isinstance(path, str) or not is_remote(path):
        with Path(path).open("rb") as file:
            yield file
        return
    try:
        remote = fsspec.open(path, "rb", compression=None).open()
    except Exception as error:  # Each file system raises of its own kinds.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CorpusError(f"Cannot read '{one_line(path)}': {one_line(reason)}.") from error
    with remote:
        yield cast(BinaryIO, remote)


@contextmanager
def _unpacked(raw: BinaryIO, compression: str) -> Iterator[BinaryIO]:
    if compression == ".gz":
        with gzip.open(raw) as stream:
            yield cast(BinaryIO, stream)
    elif compression == ".zst":
        # Unlike zstandard's own reader, this one notices an archive that ends too early.
        with pa.CompressedInputStream(raw, "zstd") as stream:
            yield stream
    else:
        yield raw


def _skip(stream: BinaryIO, size: int) -> None:
    while size > 0 and (skipped := stream.read(min(size, _SKIPPED_AT_ONCE))):
        size -= len(skipped)


def read_whole(stream: BinaryIO, path: FilePath) -> bytes:
    """Read a file that can only be understood as a whole.

    Raises:
        CorpusError: if it is larger than that should be.
    """
    content = stream.read(LARGEST_WHOLE + 1)
    if len(content) > LARGEST_WHOLE:
        raise CorpusError(
            f"'{one_line(path)}' has to be read as a whole, and holds more than {LARGEST_WHOLE:,} bytes; give it in "
            "parts, or as .jsonl or uncompressed .parquet."
        )
    return content


def file_size(path: FilePath) -> int:
    """Return the size of a file as it is stored, in bytes; of a remote one that does not tell, a very large number.

    Raises:
        CorpusError: if it cannot be reached.
    """
    try:
        if isinstance(path, Path) or not is_remote(path):
            return Path(path).stat().st_size
        system, name = fsspec.core.url_to_fs(path)
        return int(system.size(name) or UNKNOWN_SIZE)
    except Exception as error:  # Each remote file system raises of its own kinds.
        reason = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), type(error).__name__)
        raise CorpusError(f"Cannot read '{one_line(path)}': {one_line(reason)}.") from error
