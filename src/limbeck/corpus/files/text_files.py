"""Text files, and pages of Markdown and reStructuredText, as documents.

A text file has one of two layouts: blank lines between documents, or one document on each line.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from limbeck.corpus.files import limits, opening
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import OpenFile
from limbeck.corpus.files.lines import read_lines
from limbeck.corpus.files.opening import open_file
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text import documents, prose
from limbeck.corpus.text.cursor import FoundText

# A text file without a blank line among so many first lines has one document on each line.
PROBED_LINES = 1000
ONE_DOCUMENT = "file of several lines without blank lines, read as one document; separator: line reads one of each line"


def read_text(file: OpenFile) -> Iterator[FoundText]:
    """Iterate over documents between blank lines, or a document a line, as the file or the user says."""
    start = file.start
    if file.separator is not None:
        one_a_line = file.separator == "line"
    else:
        # The beginning of the file is read a second time to find its layout, unless the file is known to be short.
        one_a_line = not _is_known_to_be_short(file) and _is_one_a_line(file.path)
        if one_a_line and start.at_start:
            file.report.note("file without blank lines, read as one document per line", str(file.path))
        elif start.at_start and _is_one_document_of_lines(file):
            file.report.note(ONE_DOCUMENT, str(file.path))

    # The document that is being read: its paragraphs, their characters, and the position behind its last line.
    paragraphs: list[str] = []
    characters = 0
    end = 0
    number = 0
    for text, following, number in read_lines(
        file.stream, file.path, file.report, position=start.position, line=start.line, cut=True
    ):
        paragraph = text.strip()

        # A document that would grow too long ends before this paragraph.
        would_be_too_long = characters + len(paragraph) > limits.LONGEST_DOCUMENT
        if paragraphs and paragraph and would_be_too_long:
            file.report.note(documents.CUT_DOCUMENT, f"{file.path}:{number}")
            yield FoundText("\n".join(paragraphs), end, number - 1)
            paragraphs = []
            characters = 0

        end = following
        if paragraph:
            paragraphs.append(paragraph)
            characters += len(paragraph) + 1
        ends_document = one_a_line or not paragraph
        if paragraphs and ends_document:
            yield FoundText("\n".join(paragraphs), end, number)
            paragraphs = []
            characters = 0
    if paragraphs:
        yield FoundText("\n".join(paragraphs), end, number)


def read_markup(file: OpenFile) -> Iterator[FoundText]:
    """Yield the prose of a Markdown or reStructuredText page, as one document."""
    # A page is one document, so nothing is left of it at any later position.
    if file.start.position:
        return
    lines: list[str] = []
    characters = 0
    last = FoundText("", 0, 0)
    for last in read_lines(file.stream, file.path, file.report, cut=True):
        characters += len(last.text) + 1
        if characters > limits.LONGEST_PAGE:
            problem = f"page longer than {limits.LONGEST_PAGE:,} characters, read up to there"
            file.report.note(problem, str(file.path))
            break
        lines.append(last.text)
    is_empty = last.line == 0
    if not is_empty:
        page = prose.extract_prose("\n".join(lines))
        yield last._replace(text="\n".join(page.paragraphs))


def _is_known_to_be_short(file: OpenFile) -> bool:
    """Whether the whole file is in the buffer, and has fewer lines than are needed to find its layout."""
    if not file.start.at_start or not isinstance(file.stream, io.BufferedReader):
        return False
    buffered = file.stream.peek(opening.BUFFER_BYTES)
    is_whole = len(buffered) < opening.BUFFER_BYTES and opening.damage_of(file.stream) is None
    return is_whole and buffered.count(b"\n") + 1 < PROBED_LINES


def _is_one_document_of_lines(file: OpenFile) -> bool:
    """Whether a whole file of several lines has no blank line, as far as its first part in the buffer shows."""
    if not isinstance(file.stream, io.BufferedReader):
        return False
    beginning = file.stream.peek(opening.BUFFER_BYTES)
    # A blank line further on would separate documents, so a longer file is not judged by its beginning.
    if len(beginning) >= opening.BUFFER_BYTES:
        return False
    lines = beginning.decode(errors="replace").removeprefix("\ufeff").strip().split("\n")
    return len(lines) > 1 and all(line.strip() for line in lines)


def _is_one_a_line(path: FilePath) -> bool:
    """Whether a file has no blank line among its first `PROBED_LINES` lines, or in its first `LONGEST_LINE` bytes."""
    unused_report = SourceReport()
    with open_file(path, unused_report) as stream:
        for text, end, number in read_lines(stream, path, unused_report, cut=True):
            if not text or text.isspace():
                return False
            if number >= PROBED_LINES or end >= limits.LONGEST_LINE:
                return True
    return False
