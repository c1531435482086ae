"""`read_lines`: the lines of a text file with their numbers and positions, bad bytes repaired."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO

from limbeck.corpus.files import limits, opening
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text.cursor import FoundText

LONG_LINE = f"line longer than {limits.LONGEST_LINE:,} bytes, skipped"
CUT_LINE = f"line longer than {limits.LONGEST_LINE:,} bytes, cut"


def read_lines(
    stream: BinaryIO, path: FilePath, report: SourceReport, *, position: int = 0, line: int = 0, cut: bool = False
) -> Iterator[FoundText]:
    """Iterate over lines; bad bytes become U+FFFD, and they and lines that are too long are counted.

    A file that is damaged ends at the damage. The line in which it is is skipped, or with `cut` given up to there.

    Args:
        stream: The content from `position` on.
        path: Where it comes from.
        report: Receives everything that is skipped or repaired.
        position: Bytes before.
        line: Lines before.
        cut: Cut lines that are too long into several of the same number, instead of passing them over.
    """
    end = position
    number = line
    begins_line = True
    # The bytes of a character that a cut has divided: they go to the next part of the line.
    carry = b""
    while raw := stream.readline(limits.LONGEST_LINE - len(carry)):
        end += len(raw)
        raw = carry + raw
        carry = b""
        has_newline = raw.endswith(b"\n")
        is_first_part = begins_line
        is_last_part = has_newline or len(raw) < limits.LONGEST_LINE
        begins_line = is_last_part
        if is_first_part:
            number += 1

        if not has_newline and opening.damage_of(stream) is not None:
            if not cut:
                return
            raw = raw[: len(raw) - _unfinished(raw)]
        if is_first_part and not is_last_part:
            report.note(CUT_LINE if cut else LONG_LINE, f"{path}:{number}")
        # Without cutting, all parts of a line that is too long are passed over.
        if not cut and not (is_first_part and is_last_part):
            continue

        is_file_start = end == len(raw)
        if is_file_start:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        unfinished = 0 if is_last_part else _unfinished(raw)
        if unfinished > 0:
            carry = raw[-unfinished:]
            raw = raw[:-unfinished]
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
    """Return the number of bytes at the end that begin a character of UTF-8 without finishing it."""
    for count in range(1, min(len(raw), 3) + 1):
        byte = raw[-count]
        is_ascii = byte < 0x80
        if is_ascii:
            return 0
        is_first_byte = byte >= 0xC0
        if is_first_byte:
            needed = 2
            if byte >= 0xF0:
                needed = 4
            elif byte >= 0xE0:
                needed = 3
            return count if needed > count else 0
    return 0
