"""Lines of a text file: bounded in length, decoded, with the position behind each."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from limbeck.corpus.limits import LONGEST_LINE
from limbeck.corpus.opening import FilePath
from limbeck.corpus.source_report import SourceReport

LONG_LINE = f"line longer than {LONGEST_LINE:,} bytes, passed over"
CUT_LINE = f"line longer than {LONGEST_LINE:,} bytes, cut"


class TextLine(NamedTuple):
    """A line.

    Args:
        number: Counted from 1.
        end: Bytes up to here, the newline included.
        text: Without the newline.
    """

    number: int
    end: int
    text: str


def read_lines(
    stream: BinaryIO, path: FilePath, report: SourceReport, *, offset: int = 0, line: int = 0, cut: bool = False
) -> Iterator[TextLine]:
    """Iterate over lines; bad bytes become U+FFFD, and they and lines that are too long are counted.

    Args:
        stream: The content from `offset` on.
        path: Where it comes from.
        report: Receives what is repaired or passed over.
        offset: Bytes before.
        line: Lines before.
        cut: Cut lines that are too long into several of the same number, instead of passing them over.
    """
    end, number = offset, line
    whole = True  # Whether what follows begins a line.
    carry = b""
    while raw := stream.readline(LONGEST_LINE - len(carry)):
        end += len(raw)
        raw, carry, began = carry + raw, b"", whole
        number += began
        whole = len(raw) < LONGEST_LINE or raw.endswith(b"\n")
        if began and not whole:
            report.note(CUT_LINE if cut else LONG_LINE, f"{path}:{number}")
        if not cut and not (began and whole):
            continue
        if end == len(raw):
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if not whole and (rest := _unfinished(raw)):
            raw, carry = raw[:-rest], raw[-rest:]
        yield TextLine(number, end - len(carry), _decode(raw, path, number, report))
    if carry:
        yield TextLine(number, end, _decode(carry, path, number, report))


def _decode(raw: bytes, path: FilePath, number: int, report: SourceReport) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        report.note("line with bytes that are not UTF-8", f"{path}:{number}")
        text = raw.decode(errors="replace")
    return text.rstrip("\r\n")


def _unfinished(raw: bytes) -> int:
    """Return the number of bytes at the end that begin a character without finishing it."""
    for count in (1, 2, 3):
        last = raw[-count]
        if last < 0x80:
            return 0
        if last >= 0xC0:
            return count if (last >= 0xE0) + (last >= 0xF0) + 2 > count else 0
    return 0
