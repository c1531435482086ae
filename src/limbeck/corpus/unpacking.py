"""The content of compressed files."""

import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from limbeck.corpus.guarded import damages, is_refusal

MOST_TO_UNPACK = 2**27
"""Bytes of memory that unpacking an `.xz` file may take, twice what `xz -9` needs; `.zst` has the same bound."""

_GZIP = 16 + zlib.MAX_WBITS

_PACKED_AT_ONCE = 2**14

_AHEAD = 2**17
"""Bytes that no reader of packed files takes in ahead of what it unpacks."""

SKIPPED_AT_ONCE = 2**20


def unpacked(raw: BinaryIO, compression: str) -> Any:
    """Return the content of an open file."""
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
        except damages() as error:
            if is_refusal(error) or not self._packed.seekable():
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
            while left > 0 and (skipped := content.read(min(left, SKIPPED_AT_ONCE))):
                left -= len(skipped)
            while byte := content.read(1):
                found += byte
        except damages():
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
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_TO_UNPACK)
