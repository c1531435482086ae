"""`read_lines`: the lines of a text file with their numbers and positions; bytes that are not UTF-8 are repaired."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from limbeck.corpus.files import limits, opening
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text.cursor import FoundText

LONG_LINE = f"line longer than {limits.LONGEST_LINE:,} bytes, skipped"
CUT_LINE = f"line longer than {limits.LONGEST_LINE:,} bytes, cut"
BAD_BYTES = "line with bytes that are not UTF-8"


def read_lines(
    stream: BinaryIO,
    path: FilePath,
    report: SourceReport,
    *,
    position: int = 0,
    line: int = 0,
    cut: bool = False,
    marks_of_skipped: dict[int, int] | None = None,
) -> Iterator[FoundText]:
    """Iterate over the lines of a text file; bytes that are not UTF-8 become U+FFFD and are reported.

    A line is too long if it has more than `limits.LONGEST_LINE` bytes. Where the file is damaged, its lines end.

    Args:
        stream: The content from `position` on.
        path: The file, for the report.
        report: Receives everything that is skipped or repaired.
        position: Number of bytes of the file in front of `stream`.
        line: Number of lines in front of `stream`.
        cut: Give a line that is too long in several parts, which have the same number, and a line that damage ends up
            to the damage. Without it, both are skipped.
        marks_of_skipped: Receives the number of each line that is skipped for its length, and the quotation marks in
            it: in a table they may enclose what stands on other lines.
    """
    if cut:
        return _read_lines_in_parts(stream, path, report, position, line)
    if marks_of_skipped is None:
        marks_of_skipped = {}
    return _read_whole_lines(stream, path, report, position, line, marks_of_skipped)


def _read_whole_lines(
    stream: BinaryIO,
    path: FilePath,
    report: SourceReport,
    position: int,
    line: int,
    marks_of_skipped: dict[int, int],
) -> Iterator[FoundText]:
    """Iterate over lines, without those that are too long or that damage ends; the arguments are those of `read_lines`.

    A line that is too long leaves its number and its quotation marks in `marks_of_skipped`.
    """
    # The position behind the last line, and the number of this line.
    end = position
    number = line
    # `readline` returns a line up to its newline, or so many bytes of it, or what there is at the end of the file.
    while raw := stream.readline(limits.LONGEST_LINE):
        start = end
        end += len(raw)
        number += 1
        has_newline = raw.endswith(b"\n")
        if not has_newline and opening.damage_of(stream) is not None:
            return

        is_too_long = not has_newline and len(raw) == limits.LONGEST_LINE
        if is_too_long:
            report.note(LONG_LINE, f"{path}:{number}")
            rest = _skip_rest_of_line(stream)
            end += rest.size
            marks_of_skipped[number] = raw.count(b'"') + rest.marks
            continue

        if start == 0:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        yield FoundText(_decode(raw, path, number, report), position=end, line=number)


class _SkippedPart(NamedTuple):
    """A part of a line that was not kept in memory.

    Args:
        size: Its bytes.
        marks: Its quotation marks.
    """

    size: int
    marks: int


def _skip_rest_of_line(stream: BinaryIO) -> _SkippedPart:
    """Read up to the end of a line without keeping it in memory."""
    size = 0
    marks = 0
    while raw := stream.readline(limits.LONGEST_LINE):
        size += len(raw)
        marks += raw.count(b'"')
        if raw.endswith(b"\n"):
            break
    return _SkippedPart(size, marks)


def _read_lines_in_parts(
    stream: BinaryIO, path: FilePath, report: SourceReport, position: int, line: int
) -> Iterator[FoundText]:
    """Iterate over lines; a line that is too long comes in several parts, cut between characters."""
    # The position behind the last part, and the number of its line.
    end = position
    number = line
    is_first_part = True
    # The first bytes of a character that a cut would divide. They are given with the next part of the line.
    begun_character = b""
    # `readline` returns a line up to its newline, or so many bytes of it, or what there is at the end of the file.
    while raw := stream.readline(limits.LONGEST_LINE - len(begun_character)):
        start = end
        end += len(raw)
        part = begun_character + raw
        begun_character = b""
        has_newline = part.endswith(b"\n")
        is_last_part = has_newline or len(part) < limits.LONGEST_LINE
        if is_first_part:
            number += 1
            if not is_last_part:
                report.note(CUT_LINE, f"{path}:{number}")

        if start == 0:
            part = part.removeprefix(codecs.BOM_UTF8)
        is_damaged = not has_newline and opening.damage_of(stream) is not None
        if is_damaged or not is_last_part:
            whole_characters = part[: len(part) - _unfinished(part)]
            # The rest of a character behind the damage never comes, so its first bytes are dropped.
            if not is_damaged:
                begun_character = part[len(whole_characters) :]
            part = whole_characters
        end_of_part = end - len(begun_character)
        yield FoundText(_decode(part, path, number, report), position=end_of_part, line=number)
        # The part that follows begins a line if this one has ended its line.
        is_first_part = is_last_part

    if begun_character:  # The file ends within a character.
        yield FoundText(_decode(begun_character, path, number, report), position=end, line=number)


def _decode(raw: bytes, path: FilePath, number: int, report: SourceReport) -> str:
    """Return the text of a line without its newline."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        report.note(BAD_BYTES, f"{path}:{number}")
        text = raw.decode(errors="replace")
    return text.rstrip("\r\n")


def _unfinished(raw: bytes) -> int:
    """Return the number of bytes at the end that begin a character of UTF-8 without finishing it: 0 to 3.

    In UTF-8 the first byte of a character says how many bytes it has: below 0x80 one, from 0xC0 two, from 0xE0 three,
    from 0xF0 four. Bytes from 0x80 to 0xBF continue a character.
    """
    most_unfinished = min(len(raw), 3)
    for count in range(1, most_unfinished + 1):
        byte = raw[-count]
        if byte < 0x80:
            return 0
        if byte < 0xC0:  # The first byte of this character stands further ahead.
            continue
        bytes_of_character = 2
        if byte >= 0xF0:
            bytes_of_character = 4
        elif byte >= 0xE0:
            bytes_of_character = 3
        return count if count < bytes_of_character else 0
    return 0
