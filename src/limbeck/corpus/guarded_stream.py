"""`GuardedStream`: bytes of a file, unpacked, as long as they can be what the file's name says."""

from __future__ import annotations

import codecs
import io
from typing import Any, BinaryIO

from limbeck.corpus.limits import BINARY_SHARE, EXPANSION_FREE, FEWEST_BINARY, JUDGED_BYTES, MOST_EXPANSION

# Control characters that no text has; tab, newlines, form feed and the escape of coloured logs may be there.
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\n\v\f\r\x1b"})
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


class NotTextError(Exception):
    """A text file that is none, from its beginning."""


class DamagedError(Exception):
    """Content that cannot be what it should be from here on."""


class GuardedStream(io.RawIOBase):
    """Passes bytes on, and stops where a file unpacks to far more than it holds, or a text file is binary.

    Wrap it in a buffered reader of `JUDGED_BYTES` or more.

    Args:
        content: What is read, unpacked.
        packed: The file itself where it is compressed; its position is compared with what it unpacks to.
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
        if self._packed is not None and self._unpacked > max(EXPANSION_FREE, MOST_EXPANSION * self.packed_position()):
            raise DamagedError(f"it unpacks to more than {MOST_EXPANSION} times its size")
        if self._is_text:
            self._judge(block)
        buffer[: len(block)] = block
        return len(block)

    def packed_position(self) -> int:
        """Return how much of a compressed file has been read, in bytes."""
        return 0 if self._packed is None else self._packed.tell()

    def _read(self, size: int) -> bytes:
        # One read of the file beneath: what was unpacked before damage is not lost with it.
        read = getattr(self._content, "read1", self._content.read)
        return bytes(read(size))

    def _judge(self, block: bytes) -> None:
        """Count what no text has."""
        self._nuls += block.count(0)
        self._bad += len(block) - len(block.translate(None, _CONTROLS)) + self._undecodable(block)
        self._judged += len(block)
        if self._judged < JUDGED_BYTES and not self._first:
            return
        if self._nuls >= FEWEST_BINARY or self._bad >= max(FEWEST_BINARY, BINARY_SHARE * self._judged):
            raise NotTextError("binary") if self._first else DamagedError("binary from here on")
        self._first = False
        self._nuls = self._bad = self._judged = 0

    def _undecodable(self, block: bytes) -> int:
        waiting = bool(self._decoder.getstate()[0])
        return 0 if block.isascii() and not waiting else self._decoder.decode(block).count("\ufffd")
