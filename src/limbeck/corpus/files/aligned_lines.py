"""Aligned lines: text files of several languages, of which line n of each has the same sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.files.lines import read_lines
from limbeck.corpus.files.opening import DAMAGED, NOT_TEXT, open_file
from limbeck.corpus.messages import safe_name
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError


def read_aligned_lines(files: Mapping[str, FilePath], report: SourceReport) -> Iterator[PlacedRow]:
    """Iterate over rows of the lines that stand at the same place of several text files.

    A line ends with LF, or with CR and LF. Other characters that may end a line, such as U+2028, are part of it: they
    would move all lines behind them.

    Args:
        files: The file of each language, whose name may have any ending. A row has the language's line under its name.
        report: Receives everything that is skipped or repaired.

    Raises:
        CorpusError: if a file has more lines than another, which is known once the shorter one has ended, or if lines
            end with CR alone.
    """
    paths = list(files.values())
    lines_of_files = [_read_all_lines(path, report) for path in paths]
    for number, lines in enumerate(zip_longest(*lines_of_files), start=1):
        some_file_has_ended = None in lines
        if some_file_has_ended:
            # The lines of each file are counted for the message: those that were read, and those that follow.
            counts = []
            for line, further_lines in zip(lines, lines_of_files, strict=True):
                lines_read = number if line is not None else number - 1
                counts.append(lines_read + sum(1 for _ in further_lines))
            raise _uneven_error(paths, counts, report)
        yield PlacedRow(f"{paths[0]}:{number}", dict(zip(files, lines, strict=True)))


def _read_all_lines(path: FilePath, report: SourceReport) -> Iterator[str]:
    """Iterate over the lines of a file; a line that is skipped comes as an empty one, so that no other line moves.

    Raises:
        CorpusError: for lines that end with CR alone.
    """
    lines_before = 0
    marks_of_skipped: dict[int, int] = {}  # By the numbers of the lines that are skipped.
    with open_file(path, report) as stream:
        for line in read_lines(stream, path, report, marks_of_skipped=marks_of_skipped):
            if "\r" in line.text:
                raise CorpusError(
                    f"{safe_name(path)}:{line.line} has a carriage return (CR) within a line, so it is not clear "
                    "where lines end: end all lines with LF, or with CR and LF."
                )
            skipped_lines = line.line - lines_before - 1
            for _ in range(skipped_lines):
                yield ""
            lines_before = line.line
            yield line.text
    for number in marks_of_skipped:
        if number > lines_before:
            yield ""


def _uneven_error(paths: Sequence[FilePath], counts: Sequence[int], report: SourceReport) -> CorpusError:
    """Return the error for files of different numbers of lines, with the reason where a file was not read to its end.

    Args:
        paths: The files.
        counts: The number of lines of each.
        report: What was skipped in them.
    """
    for problem in (NOT_TEXT, DAMAGED):
        if problem in report.counts:
            return CorpusError(f"Aligned lines cannot be read: {problem} ({report.examples[problem][0]}).")
    sizes = [f"'{safe_name(path)}' has {count:,}" for path, count in zip(paths, counts, strict=True)]
    return CorpusError(
        f"Aligned files need equal numbers of lines, but {' and '.join(sizes)}: line n of each must be the same "
        "sentence, and a sentence without a translation needs an empty line."
    )
