"""Opening a local or remote file, unpacked and guarded, at any position.

A `GuardedStream` passes the bytes of a file on as long as they can be the content that its name promises.
"""

import codecs
import io
import lzma
import posixpath
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeAlias, cast
from urllib.parse import urlsplit

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


@cache
def _damages() -> tuple[type[Exception], ...]:
    """Return what damaged content raises; Arrow takes a tenth of a second to import, which naming a file need not."""
    from pyarrow import ArrowException

    return OSError, EOFError, zlib.error, lzma.LZMAError, ArrowException, DamagedError


def _is_refusal(error: Exception) -> bool:
    """Whether an error is the operating system's, which has a number, and not of the content."""
    return isinstance(error, OSError) and error.errno is not None


class GuardedStream(io.RawIOBase):
    """Passes bytes on, and stops where a file unpacks to far more than it holds, or a text file is binary.

    Wrap it in a buffered reader of `JUDGED_BYTES` or more. Content that is damaged ends at the damage, after all that
    comes before it.

    Args:
        content: The unpacked content.
        packed: The file itself where it is compressed; its position is compared with the size of the content.
        is_text: Whether the content should be text.
        from_start: Whether the content begins with the file's first byte.

    Attributes:
        damage: What ended the content: archives that are cut or garbled, later bytes that are no text, or content that
            is out of proportion; None otherwise.

    Raises:
        NotTextError: while reading, if the first bytes are not text in UTF-8.
    """

    def __init__(
        self, content: BinaryIO, *, packed: BinaryIO | None = None, is_text: bool, from_start: bool = True
    ) -> None:
        self._content = content
        self._packed = packed
        self._is_text = is_text
        self._first = from_start
        self._unpacked = 0
        self._ended = False
        self._decoder: codecs.IncrementalDecoder | None = None  # From the first byte that is not ASCII.
        self._nuls = self._bad = self._judged = 0
        self.damage: Exception | None = None

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the content; return the number of bytes, 0 at the end or at the damage."""
        if self._ended or self.damage is not None:
            return 0
        filled = self._fill(buffer)
        if self._first and self._is_text:  # The beginning is judged as a whole, however it arrives.
            while 0 < filled < len(buffer) and (more := self._fill(memoryview(buffer)[filled:])):
                filled += more
        block = bytes(buffer[:filled]) if self._is_text else b""
        if self._first and block.startswith(_WIDE_MARKS):
            raise NotTextError("in a wide encoding")
        self._unpacked += filled
        try:
            if self._packed is not None and self._unpacked > documents.most_unpacked(self.packed_position()):
                raise DamagedError(f"it unpacks to more than {documents.MOST_EXPANSION} times its size")
            if self._is_text:
                self._judge(block)
        except DamagedError as error:
            self.damage = error
            return 0
        return filled

    def packed_position(self) -> int:
        """Return how much of a compressed file has been read, in bytes."""
        return 0 if self._packed is None else self._packed.tell()

    def _fill(self, buffer: Any) -> int:
        filled = 0
        try:
            if isinstance(self._content, io.FileIO):  # A small file costs more to allocate for than to read.
                filled = self._content.readinto(buffer) or 0
            else:
                block = self._content.read(len(buffer))
                filled = len(block)
                buffer[:filled] = block
        except _damages() as error:
            if _is_refusal(error):
                raise
            self.damage = error
        self._ended = not filled
        return filled

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
        if block.isascii() and (self._decoder is None or not self._decoder.getstate()[0]):
            return 0
        self._decoder = self._decoder or codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoder.decode(block).count("\ufffd")


FilePath: TypeAlias = Path | str
"""A path, or the address of a remote file."""

NOT_TEXT = "file not in UTF-8, skipped"
DAMAGED = "damaged file, read up to the damage"
COMPRESSIONS = (".gz", ".xz", ".zst")
_MOST_TO_UNPACK = 2**27
"""Bytes of memory that unpacking an `.xz` file may take, twice what `xz -9` needs; `.zst` has the same bound."""
_GZIP = 16 + zlib.MAX_WBITS
_PACKED_AT_ONCE = 2**14
_AHEAD = 2**17
"""Bytes that no reader of packed files takes in ahead of what it unpacks."""
_SKIPPED_AT_ONCE = 2**20
BUFFER_BYTES = 2 * documents.JUDGED_BYTES
"""Of an open text file; its first so many bytes can be peeked at."""
UNKNOWN_SIZE = 2**62
"""Size assumed for a remote file whose server does not state one."""


def is_remote(path: FilePath) -> bool:
    """Whether `path` is the address of a remote file, such as `https://…` or `s3://…`."""
    return isinstance(path, str) and "://" in path


def as_path(path: FilePath) -> Path:
    """Return the path of a local file; to parse one that is a path already takes as long as to ask for its size."""
    return path if isinstance(path, Path) else Path(path)


def suffixes_of(path: FilePath) -> list[str]:
    """Return the suffixes of a file's name, in lower case; the query of an address is left out."""
    name = posixpath.basename(urlsplit(path).path) if isinstance(path, str) and "://" in path else as_path(path).name
    # As `Path.suffixes` has them, in a third of its time.
    return [] if name.endswith(".") else ["." + suffix for suffix in name.lstrip(".").lower().split(".")[1:]]


def compression_of(path: FilePath) -> str:
    """Return which of `COMPRESSIONS` the name of a file ends in; empty for none."""
    last = "".join(suffixes_of(path)[-1:])
    return last if last in COMPRESSIONS else ""


def is_compressed(path: FilePath) -> bool:
    """Whether the name of a file ends in one of `COMPRESSIONS`."""
    return bool(compression_of(path))


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
    packed = compression_of(path)
    guard: GuardedStream | None = None
    try:
        with _raw(path, buffered=is_binary or bool(packed)) as raw:
            if is_binary and not packed:
                yield raw
                return
            if not packed:
                raw.seek(position)
            guard = GuardedStream(
                _unpacked(raw, packed),
                packed=raw if packed else None,
                is_text=not is_binary,
                from_start=bool(packed) or position == 0,
            )
            with io.BufferedReader(guard, buffer_size=BUFFER_BYTES) as stream:
                left = position if packed else 0
                while left > 0 and (skipped := stream.read(min(left, _SKIPPED_AT_ONCE))):
                    left -= len(skipped)
                yield stream
    except GeneratorExit:  # The reader wants no more; at the interpreter's end the names below are gone.
        raise
    except NotTextError as error:
        report.note(NOT_TEXT, f"{path}: {error}")
    except _damages() as error:
        if isinstance(error, OSError) and _is_refusal(error):
            raise CorpusError(f"Cannot read '{one_line(path)}': {error.strerror}.") from error
        found = guard.damage if guard is not None and guard.damage is not None else error
        report.note(DAMAGED, f"{path}: {first_line(found)}")
    else:
        if guard is not None and guard.damage is not None:
            report.note(DAMAGED, f"{path}: {first_line(guard.damage)}")


def damage_of(stream: BinaryIO) -> Exception | None:
    """Return what ended the content of an open file before its end, if anything has."""
    return getattr(getattr(stream, "raw", None), "damage", None)


def _raw(path: FilePath, *, buffered: bool) -> BinaryIO:
    if not is_remote(path):
        return as_path(path).open("rb", buffering=-1 if buffered else 0)
    try:
        import fsspec  # type: ignore[import-untyped]

        return cast(BinaryIO, fsspec.open(path, "rb", compression=None).open())
    except Exception as error:  # Each file system raises other kinds.
        raise CorpusError(f"Cannot read '{one_line(path)}': {one_line(first_line(error))}.") from error


def _unpacked(raw: BinaryIO, compression: str) -> Any:
    unpack = {".gz": _UnpackedGz, ".xz": _UnpackedXz, ".zst": _unpack_zst}.get(compression)
    return raw if unpack is None else _Unpacked(raw, unpack)


def _unpack_zst(packed: BinaryIO) -> Any:
    # Unlike zstandard's own reader, this one notices an archive that ends too early.
    from pyarrow import CompressedInputStream

    return CompressedInputStream(packed, "zstd")


class _Unpacked:
    """The content of a packed file, to the last byte before damage.

    What a reader unpacks in one go with the damage is lost with it. So a damaged file is read a second time, byte by
    byte where the damage was found.

    Args:
        packed: The file.
        unpack: Opens its content, whose `read` gives no more bytes than it is asked for.
    """

    def __init__(self, packed: BinaryIO, unpack: Callable[[BinaryIO], Any]) -> None:
        self._packed, self._unpack = packed, unpack
        self._opened = [unpack(packed)]  # All are kept: Arrow's reader closes the file when it goes.
        self._given = 0
        self._damage: Exception | None = None

    def read(self, size: int) -> bytes:
        """Return the next bytes, no more than `size`; none at the end."""
        if self._damage is not None:
            raise self._damage
        try:
            block = self._opened[0].read(size)
        except _damages() as error:
            if _is_refusal(error) or not self._packed.seekable():
                raise
            self._damage = error
            block = self._read_before_damage()
            if not block:
                raise
        self._given += len(block)
        return bytes(block)

    def _read_before_damage(self) -> bytes:
        slowly = cast(BinaryIO, _ReadSlowly(self._packed, self._packed.tell() - _AHEAD))
        self._opened.append(content := self._unpack(slowly))
        found, left = bytearray(), self._given
        try:
            while left > 0 and (skipped := content.read(min(left, _SKIPPED_AT_ONCE))):
                left -= len(skipped)
            while byte := content.read(1):
                found += byte
        except _damages():
            if left > 0:
                raise
        return bytes(found)


class _ReadSlowly(io.RawIOBase):
    """A file from its beginning, byte by byte behind a position."""

    def __init__(self, file: BinaryIO, position: int) -> None:
        self._file, self._position = file, position
        file.seek(0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._file.read(max(1, min(len(buffer), self._position - self._file.tell())))
        buffer[: len(block)] = block
        return len(block)


class _UnpackedGz:
    """The content of a `.gz` file, of any number of members; Python's own reader unpacks more than it is asked for."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._waiting = packed.read(_PACKED_AT_ONCE)
        self._member = zlib.decompressobj(_GZIP) if self._waiting else None

    def read(self, size: int) -> bytes:
        """Return the next bytes, no more than `size`; none at the end."""
        block = b""
        while self._member is not None and not block:
            block = self._member.decompress(self._waiting, size)
            self._waiting = self._member.unconsumed_tail
            if self._member.eof:
                self._begin_next(self._member.unused_data)
            elif not block and not self._waiting:
                self._waiting = self._packed.read(_PACKED_AT_ONCE)
                if not self._waiting:
                    raise EOFError("it ends before its end mark")
        return block

    def _begin_next(self, packed: bytes) -> None:
        """Begin the next member, if there is one; zeros may lie between."""
        self._member = None
        while not (packed := packed.lstrip(b"\0")):
            packed = self._packed.read(_PACKED_AT_ONCE)
            if not packed:
                return
        self._waiting, self._member = packed, zlib.decompressobj(_GZIP)


class _UnpackedXz:
    """The content of an `.xz` file, of any number of streams; Python's own reader takes what memory the file asks."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._stream = self._begin()

    def read(self, size: int) -> bytes:
        """Return the next bytes, no more than `size`; none at the end."""
        block = b""
        while not block:
            packed = b""
            if self._stream.eof:
                packed = self._stream.unused_data.lstrip(b"\0")  # Streams may be padded.
                while not packed and (more := self._packed.read(_PACKED_AT_ONCE)):
                    packed = more.lstrip(b"\0")
                if not packed:
                    return b""
                self._stream = self._begin()
            elif self._stream.needs_input and not (packed := self._packed.read(_PACKED_AT_ONCE)):
                raise EOFError("it ends before its end mark")
            block = self._stream.decompress(packed, size)
        return block

    def _begin(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_TO_UNPACK)


def read_whole(stream: BinaryIO, path: FilePath) -> bytes:
    """Read a file that can only be understood as a whole.

    Raises:
        CorpusError: if it is larger than that should be.
    """
    content = stream.read(documents.LARGEST_WHOLE + 1)
    if len(content) > documents.LARGEST_WHOLE:
        raise CorpusError(
            f"'{one_line(path)}' can only be read as a whole, but holds more than {documents.LARGEST_WHOLE:,} bytes; "
            "split it, or give it as .jsonl or uncompressed .parquet."
        )
    return content


def file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the name that it has there; each raises errors of other kinds."""
    import fsspec

    system, name = fsspec.core.url_to_fs(address)
    return system, name


def file_size(path: FilePath) -> int:
    """Return the stored size of a file in bytes; `UNKNOWN_SIZE` where a remote server does not state it.

    Raises:
        CorpusError: if it cannot be reached.
    """
    try:
        if not is_remote(path):
            return as_path(path).stat().st_size
        system, name = file_system(str(path))
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
    """Read a small UTF-8 file of the user with a text a line; blank lines are skipped.

    Args:
        path: The file.
        most: Lines behind so many texts are not read.

    Raises:
        CorpusError: if it cannot be read, or holds no text.
    """
    with _plain_text(path) as file:
        texts = list(islice(filter(None, map(str.strip, file)), most))
    if not texts:
        raise CorpusError(f"'{path}' holds no text; give a file with one sentence or paragraph per line.")
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
