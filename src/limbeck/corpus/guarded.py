"""A stream that passes the bytes of a file on as long as they can be the content that its name promises."""

import codecs
import io
import lzma
import zlib
from functools import cache
from typing import Any, BinaryIO

from limbeck.corpus import limits

# Control characters that no text has; tab, newlines, form feed and the escape of coloured logs may be there.
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\n\v\f\r\x1b"})

_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


class NotTextError(Exception):
    """Content that is not text, from its beginning."""


class DamagedError(Exception):
    """Content that is damaged from here on."""


@cache
def damages() -> tuple[type[Exception], ...]:
    """Return what damaged content raises; Arrow takes a tenth of a second to import, which naming a file need not."""
    from pyarrow import ArrowException

    return OSError, EOFError, zlib.error, lzma.LZMAError, ArrowException, DamagedError


def is_refusal(error: Exception) -> bool:
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
            if self._packed is not None and self._unpacked > limits.most_unpacked(self.packed_position()):
                raise DamagedError(f"it unpacks to more than {limits.MOST_EXPANSION} times its size")
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
        except damages() as error:
            if is_refusal(error):
                raise
            self.damage = error
        self._ended = not filled
        return filled

    def _judge(self, block: bytes) -> None:
        """Count what no text has."""
        self._nuls += block.count(0)
        self._bad += len(block) - len(block.translate(None, _CONTROLS)) + self._undecodable(block)
        self._judged += len(block)
        if self._judged < limits.JUDGED_BYTES and not self._first:
            return
        if self._nuls >= limits.FEWEST_BINARY or self._bad >= max(
            limits.FEWEST_BINARY, limits.BINARY_SHARE * self._judged
        ):
            raise NotTextError("binary") if self._first else DamagedError("binary from here on")
        self._first = False
        self._nuls = self._bad = self._judged = 0

    def _undecodable(self, block: bytes) -> int:
        if block.isascii() and (self._decoder is None or not self._decoder.getstate()[0]):
            return 0
        self._decoder = self._decoder or codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoder.decode(block).count("\ufffd")
