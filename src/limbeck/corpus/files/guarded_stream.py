"""`GuardedStream`: the bytes of a file, up to the place where they stop being what its name promises.

A text file may turn out to be binary, and a small archive may unpack to terabytes. Bytes from there on are *damage*.
"""

import codecs
import io
import lzma
import zlib
from functools import cache
from typing import Any, BinaryIO

from limbeck.corpus.files import limits

# Control characters that no text has; tab, newlines, form feed and the escape of coloured logs may be there.
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\n\v\f\r\x1b"})
# The first bytes of text whose characters have two or four bytes each.
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


class NotTextError(Exception):
    """Content that is not text, from its beginning."""


class DamagedError(Exception):
    """Content that is damaged from here on."""


@cache
def damages() -> tuple[type[Exception], ...]:
    """Return the exceptions that damaged content raises."""
    # Arrow takes a tenth of a second to import, which naming a file need not.
    from pyarrow import ArrowException

    return OSError, EOFError, zlib.error, lzma.LZMAError, ArrowException, DamagedError


def is_refusal(error: Exception) -> bool:
    """Whether an error is the operating system's (it has an `errno`), and not one that the content has caused."""
    return isinstance(error, OSError) and error.errno is not None


class GuardedStream(io.RawIOBase):
    """Passes bytes on, and ends where a file unpacks to far more than its size, or where a text file becomes binary.

    Wrap it in a buffered reader with a buffer of `JUDGED_BYTES` or more. A reader finds the end of the content at the
    damage, without an error; `damage` then has the reason.

    Args:
        content: The unpacked content; its `readinto` is called.
        packed: The file itself where it is compressed; its position is compared with the size of the content.
        is_text: Whether the content should be text.
        from_start: Whether the content begins with the file's first byte.

    Attributes:
        damage: The error that ended the content: the archive is cut or garbled, bytes behind the beginning are not
            text, or the content is out of proportion to the file. None without damage.

    Raises:
        NotTextError: while reading, if the first bytes are not text in UTF-8.
    """

    def __init__(self, content: Any, *, packed: BinaryIO | None = None, is_text: bool, from_start: bool = True) -> None:
        self._content = content
        self._packed = packed
        self._judge = _TextJudge(from_start) if is_text else None
        self._unpacked = 0
        self._has_ended = False
        self.damage: Exception | None = None

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the content; return the number of bytes, 0 at the end or at the damage."""
        if self._has_ended or self.damage is not None:
            return 0
        filled = self._fill(buffer)
        # A source may return fewer bytes than the buffer holds. The beginning is judged as a whole, so it is read on.
        if self._judge is not None and self._judge.is_at_start:
            last_filled = filled
            while last_filled > 0 and filled < len(buffer):
                last_filled = self._fill(memoryview(buffer)[filled:])
                filled += last_filled

        self._unpacked += filled
        try:
            self._check(memoryview(buffer)[:filled])
        except DamagedError as error:
            self.damage = error
            return 0
        return filled

    def _check(self, block: memoryview) -> None:
        """Check the bytes that were read last, and how many were read so far.

        Raises:
            NotTextError: if the beginning is not text.
            DamagedError: if they are damage.
        """
        if self._packed is not None and self._unpacked > limits.most_unpacked(self.packed_position()):
            raise DamagedError(
                f"it unpacks to more than {limits.MOST_EXPANSION} times its size, as files made to fill a disk do"
            )
        if self._judge is not None:
            self._judge.check(bytes(block))

    def packed_position(self) -> int:
        """Return the bytes of a compressed file that have been read."""
        return 0 if self._packed is None else self._packed.tell()

    def _fill(self, buffer: Any) -> int:
        """Read into `buffer` once; return the number of bytes. An error of the content becomes the damage."""
        filled = 0
        try:
            filled = self._content.readinto(buffer) or 0
        except damages() as error:
            if is_refusal(error):
                raise
            self.damage = error
        self._has_ended = filled == 0
        return filled


class _TextJudge:
    """Decides whether bytes are text, by counting bytes that no text has.

    Bytes are judged in stretches of `limits.JUDGED_BYTES`, and the beginning of a file as soon as it has arrived.

    Args:
        from_start: Whether the bytes begin with the file's first byte.

    Attributes:
        is_at_start: Whether the beginning of the file has not been judged yet.
    """

    def __init__(self, from_start: bool) -> None:
        self.is_at_start = from_start
        # The decoder is made at the first byte that is not ASCII, since most files have none.
        self._decoder: codecs.IncrementalDecoder | None = None
        # Counts since the last judgement: zero bytes, bytes that text in UTF-8 does not have, and all bytes.
        self._nul_bytes = 0
        self._foreign_bytes = 0
        self._unjudged_bytes = 0

    def check(self, block: bytes) -> None:
        """Take in the next bytes, and judge them once there are enough of them.

        Raises:
            NotTextError: if the beginning is not text.
            DamagedError: if it was text before.
        """
        if self.is_at_start and block.startswith(_WIDE_MARKS):
            raise NotTextError("in a wide encoding")
        controls = len(block) - len(block.translate(None, _CONTROLS))
        self._nul_bytes += block.count(0)
        self._foreign_bytes += controls + self._count_undecodable(block)
        self._unjudged_bytes += len(block)
        is_stretch_complete = self._unjudged_bytes >= limits.JUDGED_BYTES
        if not is_stretch_complete and not self.is_at_start:
            return

        # Text may have some bytes that are none: it is judged by their share, and by NUL bytes, which text never has.
        most_foreign_bytes = max(limits.FEWEST_BINARY, limits.BINARY_SHARE * self._unjudged_bytes)
        if self._nul_bytes >= limits.FEWEST_BINARY or self._foreign_bytes >= most_foreign_bytes:
            if self.is_at_start:
                raise NotTextError("binary")
            raise DamagedError("binary from here on")
        self.is_at_start = False
        self._nul_bytes = 0
        self._foreign_bytes = 0
        self._unjudged_bytes = 0

    def _count_undecodable(self, block: bytes) -> int:
        """Return the number of places in a block that are not UTF-8; a character may go across two blocks."""
        is_within_character = self._decoder is not None and bool(self._decoder.getstate()[0])
        if block.isascii() and not is_within_character:
            return 0
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoder.decode(block).count("\ufffd")
