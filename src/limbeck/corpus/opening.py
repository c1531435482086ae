"""Opening a local or remote file, unpacked and guarded, at any position.

A `GuardedStream` passes the bytes of a file on as long as they can be the content that its name promises.
"""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TextIO, TypeAlias, cast
from urllib.parse import urlsplit

import fsspec  # type: ignore[import-untyped]
import pyarrow as pa

from limbeck.corpus import documents
from limbeck.corpus.documents import SourceReport, first_line, one_line
from limbeck.errors import CorpusError

# Control characters that no text has; tab, newlines, form feed and the escape of coloured logs may be there.
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\n\v\f\r\x1b"})
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


class NotTextError(Exception):
    """Content that is not text, from its beginning."""


class DamagedError(Exception):
    """Content that is damaged from here on."""


class GuardedStream(io.RawIOBase):
    """Passes bytes on, and stops where a file unpacks to far more than it holds, or a text file is binary.

    Wrap it in a buffered reader of `JUDGED_BYTES` or more.

    Args:
        content: The unpacked content.
        packed: The file itself where it is compressed; its position is compared with the size of the content.
        is_text: Whether the content should be text.
        from_start: Whether the content begins with the file's first byte.

    Raises:
        NotTextError: while reading, if the first bytes are not text in UTF-8.
        DamagedError: while reading, if later bytes are not, or the content is out of proportion.
    """

    def __init__(
        self, content: BinaryIO, *, packed: BinaryIO | None = None, is_text: bool, from_start: bool = True
    ) -> None:
        self._content = content
        self._packed = packed
        self._is_text = is_text
        self._first = from_start
        self._unpacked = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._nuls = self._bad = self._judged = 0

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the content; return the number of bytes, 0 at the end."""
        block = self._read(len(buffer))
        if self._first and self._is_text:  # The beginning is judged as a whole, however it arrives.
            while len(block) < len(buffer) and (more := self._read(len(buffer) - len(block))):
                block += more
            if block.startswith(_WIDE_MARKS):
                raise NotTextError("in a wide encoding")
        self._unpacked += len(block)
        if self._packed is not None and self._unpacked > documents.most_unpacked(self.packed_position()):
            raise DamagedError(f"it unpacks to more than {documents.MOST_EXPANSION} times its size")
        if self._is_text:
            self._judge(block)
        buffer[: len(block)] = block
        return len(block)

    def packed_position(self) -> int:
        """Return how much of a compressed file has been read, in bytes."""
        return 0 if self._packed is None else self._packed.tell()

    def _read(self, size: int) -> bytes:
        # One read of the file beneath: the content before the damage is not lost with it.
        read = getattr(self._content, "read1", self._content.read)
        return bytes(read(size))

    def _judge(self, block: bytes) -> None:
        """Count what no text has."""
        self._nuls += block.count(0)
        self._bad += len(block) - len(block.translate(None, _CONTROLS)) + self._undecodable(block)
        self._judged += len(block)
        if self._judged < documents.JUDGED_BYTES and not self._first:
            return
        if self._nuls >= documents.FEWEST_BINARY or self._bad >= max(
            documents.FEWEST_BINARY, documents.BINARY_SHARE * self._judged
        ):
            raise NotTextError("binary") if self._first else DamagedError("binary from here on")
        self._first = False
        self._nuls = self._bad = self._judged = 0

    def _undecodable(self, block: bytes) -> int:
        waiting = bool(self._decoder.getstate()[0])
        return 0 if block.isascii() and not waiting else self._decoder.decode(block).count("\ufffd")


FilePath: TypeAlias = Path | str
"""A path, or the address of a remote file."""

NOT_TEXT = "file not in UTF-8, passed over"
DAMAGED = "damaged file, read up to the damage"
COMPRESSIONS = (".gz", ".zst")
_SKIPPED_AT_ONCE = 2**20
UNKNOWN_SIZE = 2**62
"""Size assumed for a remote file whose server does not state one."""


def is_remote(path: FilePath) -> bool:
    """Whether `path` is the address of a remote file, such as `https://…` or `s3://…`."""
    return isinstance(path, str) and "://" in path


def suffixes_of(path: FilePath) -> list[str]:
    """Return the suffixes of a file's name, in lower case; the query of an address is left out."""
    name = PurePosixPath(urlsplit(path).path) if isinstance(path, str) and "://" in path else Path(path)
    return [suffix.lower() for suffix in name.suffixes]


def is_compressed(path: FilePath) -> bool:
    """Whether the name of a file ends in `.gz` or `.zst`."""
    return bool(set(suffixes_of(path)[-1:]).intersection(COMPRESSIONS))


@contextmanager
def open_file(
    path: FilePath, report: SourceReport, position: int = 0, *, is_binary: bool = False
) -> Iterator[BinaryIO]:
    """Open a file, unpacked; damage ends the reading inside the `with` and is noted.

    Args:
        path: The file.
        report: Receives the damage.
        position: Where to begin, in bytes of the unpacked content. A compressed file is unpacked up to there; another
            one is entered there.
        is_binary: Whether the content is no text, and is read at any place rather than from its beginning.

    Raises:
        CorpusError: if the file cannot be read at all.
    """
    packed = is_compressed(path)
    try:
        with ExitStack() as files:
            raw = files.enter_context(_raw(path))
            if is_binary and not packed:
                yield raw
                return
            if not packed:
                raw.seek(position)
            content = files.enter_context(_unpacked(raw, suffixes_of(path)[-1] if packed else ""))
            from_start = packed or position == 0
            guard = GuardedStream(content, packed=raw if packed else None, is_text=not is_binary, from_start=from_start)
            stream = files.enter_context(io.BufferedReader(guard, buffer_size=2 * documents.JUDGED_BYTES))
            left = position if packed else 0
            while left > 0 and (skipped := stream.read(min(left, _SKIPPED_AT_ONCE))):
                left -= len(skipped)
            yield stream
    except GeneratorExit:  # The reader wants no more; at the interpreter's end the names below are gone.
        raise
    except NotTextError as error:
        report.note(NOT_TEXT, f"{path}: {error}")
    except (OSError, EOFError, zlib.error, pa.ArrowException, DamagedError) as error:
        # Refusals of the operating system have a number; the others come from the content.
        if isinstance(error, OSError) and error.errno is not None:
            raise CorpusError(f"Cannot read '{one_line(path)}': {error.strerror}.") from error
        report.note(DAMAGED, f"{path}: {first_line(error)}")


def _raw(path: FilePath) -> BinaryIO:
    if not is_remote(path):
        return Path(path).open("rb")
    try:
        return cast(BinaryIO, fsspec.open(path, "rb", compression=None).open())
    except Exception as error:  # Each file system raises other kinds.
        raise CorpusError(f"Cannot read '{one_line(path)}': {one_line(first_line(error))}.") from error


def _unpacked(raw: BinaryIO, compression: str) -> AbstractContextManager[Any]:
    if compression == ".gz":
        return gzip.open(raw)
    # Unlike zstandard's own reader, this one notices an archive that ends too early.
    return pa.CompressedInputStream(raw, "zstd") if compression == ".zst" else nullcontext(raw)


def read_whole(stream: BinaryIO, path: FilePath) -> bytes:
    """Read a file that can only be understood as a whole.

    Raises:
        CorpusError: if it is larger than that should be.
    """
    content = stream.read(documents.LARGEST_WHOLE + 1)
    if len(content) > documents.LARGEST_WHOLE:
        raise CorpusError(
            f"'{one_line(path)}' has to be read as a whole, and holds more than {documents.LARGEST_WHOLE:,} bytes; "
            "give it in parts, or as .jsonl or uncompressed .parquet."
        )
    return content


def file_size(path: FilePath) -> int:
    """Return the stored size of a file in bytes; `UNKNOWN_SIZE` where a remote server does not state it.

    Raises:
        CorpusError: if it cannot be reached.
    """
    try:
        if not is_remote(path):
            return Path(path).stat().st_size
        system, name = fsspec.core.url_to_fs(path)
        return int(system.size(name) or UNKNOWN_SIZE)
    except Exception as error:  # Each file system raises other kinds.
        reason = getattr(error, "strerror", None) or first_line(error)
        raise CorpusError(f"Cannot read '{one_line(path)}': {one_line(reason)}.") from error


def read_lines(path: Path) -> list[str]:
    """Read the lines of a small UTF-8 file of the user, without their ends.

    Raises:
        CorpusError: if it is missing, a folder, not readable, or not in UTF-8.
    """
    with _plain_text(path) as file:
        return file.read().splitlines()


def read_texts(path: Path, most: int | None = None) -> list[str]:
    """Read a small UTF-8 file of the user with a text a line; blank lines are passed over.

    Args:
        path: The file.
        most: Lines behind so many texts are not read.

    Raises:
        CorpusError: if it cannot be read, or holds no text.
    """
    with _plain_text(path) as file:
        texts = list(islice(filter(None, map(str.strip, file)), most))
    if not texts:
        raise CorpusError(f"'{path}' holds no text; give a file with one sentence or paragraph a line.")
    return texts


@contextmanager
def _plain_text(path: Path) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield file
    except UnicodeDecodeError as error:
        raise CorpusError(f"'{path}' is not in UTF-8 (byte {error.start}); convert it first.") from error
    except OSError as error:
        raise CorpusError(f"Cannot read '{path}': {error.strerror}; give a text file.") from error
