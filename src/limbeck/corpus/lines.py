"""Lines of a text file, with their numbers and positions."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from limbeck.corpus import limits, opening
from limbeck.corpus.addresses import FilePath
from limbeck.corpus.cursor import FoundText
from limbeck.corpus.source_report import SourceReport

if TYPE_CHECKING:
    pass


LONG_LINE = f"line longer than {limits.LONGEST_LINE:,} bytes, skipped"

CUT_LINE = f"line longer than {limits.LONGEST_LINE:,} bytes, cut"


def read_lines(
    stream: BinaryIO, path: FilePath, report: SourceReport, *, position: int = 0, line: int = 0, cut: bool = False
) -> Iterator[FoundText]:
    """Iterate over lines; bad bytes become U+FFFD, and they and lines that are too long are counted.

    Of a file that is damaged the line that the damage cuts is skipped, or with `cut` ends there.

    Args:
        stream: The content from `position` on.
        path: Where it comes from.
        report: Receives everything that is skipped or repaired.
        position: Bytes before.
        line: Lines before.
        cut: Cut lines that are too long into several of the same number, instead of passing them over.
    """
    end, number = position, line
    whole = True  # Whether what follows begins a line.
    carry = b""
    while raw := stream.readline(limits.LONGEST_LINE - len(carry)):
        end += len(raw)
        raw, carry, began = carry + raw, b"", whole
        number += began
        whole = len(raw) < limits.LONGEST_LINE or raw.endswith(b"\n")
        if not raw.endswith(b"\n") and opening.damage_of(stream) is not None:
            if not cut:
                return
            raw = raw[: len(raw) - _unfinished(raw)]
        if began and not whole:
            report.note(CUT_LINE if cut else LONG_LINE, f"{path}:{number}")
        if not cut and not (began and whole):
            continue
        if end == len(raw):
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if not whole and (rest := _unfinished(raw)):
            raw, carry = raw[:-rest], raw[-rest:]
        yield FoundText(_decode(raw, path, number, report), end - len(carry), number)
    if carry:
        yield FoundText(_decode(carry, path, number, report), end, number)


def _decode(raw: bytes, path: FilePath, number: int, report: SourceReport) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        report.note("line with bytes that are not UTF-8", f"{path}:{number}")
        text = raw.decode(errors="replace")
    return text.rstrip("\r\n")


def _unfinished(raw: bytes) -> int:
    """Return the number of bytes at the end that begin a character without finishing it."""
    for count in range(1, min(len(raw), 3) + 1):
        last = raw[-count]
        if last < 0x80:
            return 0
        if last >= 0xC0:
            return count if (last >= 0xE0) + (last >= 0xF0) + 2 > count else 0
    return 0
