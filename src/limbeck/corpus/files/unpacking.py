"""`UnpackedFile`: the content of a compressed file (.gz, .xz, .zst).

The content is unpacked in blocks of a fixed size. A block with damage in it is lost as a whole, so that a damaged file
gives the same text each time it is read.
"""

import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO

MOST_TO_UNPACK = 2**27
"""Bytes of memory that unpacking an `.xz` file may take, twice what `xz -9` needs; `.zst` has the same bound."""
_BLOCK = 2**14
_PACKED_AT_ONCE = 2**14


class UnpackedFile(io.RawIOBase):
    """The content of a compressed file.

    Args:
        packed: The file.
        compression: One of `addresses.COMPRESSIONS`.

    Raises:
        Exception: while reading, one of `guarded_stream.damages`, behind all blocks before the damage.
    """

    def __init__(self, packed: BinaryIO, compression: str) -> None:
        self._read_block = _block_reader(packed, compression)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` with what is left of a block, or with the next one; return the number of bytes."""
        if not self._rest:
            self._rest = memoryview(self._read_block())
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _block_reader(packed: BinaryIO, compression: str) -> Callable[[], bytes]:
    """Return a function that returns the next block of a file's content, and an empty block at the end."""
    if compression == ".gz":
        # `read1`, unlike `read`, returns what it has unpacked before it meets damage.
        return partial(gzip.GzipFile(fileobj=packed).read1, _BLOCK)
    if compression == ".xz":
        return partial(next, _xz_blocks(packed), b"")
    # Unlike zstandard's own reader, Arrow's notices an archive that ends too early.
    from pyarrow import CompressedInputStream

    return partial(CompressedInputStream(packed, "zstd").read, _BLOCK)


def _xz_blocks(packed: BinaryIO) -> Iterator[bytes]:
    """Iterate over the content of an `.xz` file, in blocks of `_BLOCK` bytes or fewer.

    The format allows several compressed streams behind each other, with zero bytes between them. `lzma.LZMAFile` reads
    it too, but takes as much memory as the file asks for.
    """
    packed_bytes = packed.read(_PACKED_AT_ONCE)  # Those that the decompressor has not received yet.
    while packed_bytes:
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_TO_UNPACK)
        while not stream.eof:
            if stream.needs_input and not packed_bytes:
                packed_bytes = packed.read(_PACKED_AT_ONCE)
                if not packed_bytes:
                    raise EOFError("it ends before its end mark")
            block = stream.decompress(packed_bytes, _BLOCK)
            packed_bytes = b""
            if block:
                yield block

        # Behind the end of a stream another may begin, after some zero bytes.
        packed_bytes = stream.unused_data.lstrip(b"\0")
        while not packed_bytes:
            next_bytes = packed.read(_PACKED_AT_ONCE)
            if not next_bytes:
                return
            packed_bytes = next_bytes.lstrip(b"\0")
