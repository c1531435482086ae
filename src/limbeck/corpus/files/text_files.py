"""Text files, and pages of Markdown and reStructuredText, as documents.

A text file has one of two layouts: blank lines between documents, or one document on each line.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from limbeck.corpus.files import limits, opening
from limbeck.corpus.files.file_kinds import OpenFile
from limbeck.corpus.files.lines import read_lines
from limbeck.corpus.files.opening import open_file
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text import documents, prose
from limbeck.corpus.text.cursor import FoundText

# A text file without a blank line among so many first lines has one document on each line.
PROBED_LINES = 1000
ONE_DOCUMENT = "file of several lines without blank lines, read as one document; separator: line reads one of each line"
CR_LINES = "file whose lines end with CR, read as one document; end them with LF for one of each line"
_Layout: TypeAlias = Literal["blank_lines", "lines", "one_document", "cr_lines"]
"""Blank lines stand between documents, or every line is one, or the whole file is one, of several lines or of lines
that end with CR alone."""
_NOTES: Mapping[_Layout, str] = {
    "lines": "file without blank lines, read as one document per line",
    "one_document": ONE_DOCUMENT,
    "cr_lines": CR_LINES,
}


def read_text(file: OpenFile) -> Iterator[FoundText]:
    """Iterate over documents between blank lines, or a document a line, as the file or the user says."""
    start = file.start
    if file.separator is not None:
        lines_are_documents = file.separator == "line"
    else:
        layout = _layout_of(file)
        lines_are_documents = layout == "lines"
        # Where reading resumes, the layout has been noted before.
        if start.at_start and layout in _NOTES:
            file.report.note(_NOTES[layout], str(file.path))

    # The document that is being read: its paragraphs, their characters, and the position behind its last line.
    paragraphs: list[str] = []
    characters = 0
    end = 0
    number = 0
    lines = read_lines(file.stream, file.path, file.report, position=start.position, line=start.line, cut=True)
    for text, end_of_line, number in lines:
        paragraph = text.strip()

        # A document that would grow too long ends before this paragraph.
        would_be_too_long = characters + len(paragraph) > limits.LONGEST_DOCUMENT
        if paragraphs and paragraph and would_be_too_long:
            file.report.note(documents.CUT_DOCUMENT, f"{file.path}:{number}")
            yield FoundText("\n".join(paragraphs), position=end, line=number - 1)
            paragraphs = []
            characters = 0

        end = end_of_line
        if paragraph:
            paragraphs.append(paragraph)
            characters += len(paragraph) + 1
        ends_document = lines_are_documents or not paragraph
        if paragraphs and ends_document:
            yield FoundText("\n".join(paragraphs), position=end, line=number)
            paragraphs = []
            characters = 0
    if paragraphs:
        yield FoundText("\n".join(paragraphs), position=end, line=number)


def read_markup(file: OpenFile) -> Iterator[FoundText]:
    """Yield the prose of a Markdown or reStructuredText page, as one document."""
    # A page is one document, so nothing is left of it at any later position.
    if file.start.position:
        return
    lines: list[str] = []
    characters = 0
    last_line: FoundText | None = None
    for line in read_lines(file.stream, file.path, file.report, cut=True):
        last_line = line
        characters += len(line.text) + 1
        if characters > limits.LONGEST_PAGE:
            problem = f"page longer than {limits.LONGEST_PAGE:,} characters, read up to there"
            file.report.note(problem, str(file.path))
            break
        lines.append(line.text)
    # An empty file has no page.
    if last_line is None:
        return
    page = prose.extract_prose("\n".join(lines))
    # The page ends where the last line that was read ends.
    yield FoundText("\n".join(page.paragraphs), position=last_line.position, line=last_line.line)


def _layout_of(file: OpenFile) -> _Layout:
    """Return the layout of a file, judged by its first `PROBED_LINES` lines or `LONGEST_LINE` bytes."""
    unused_report = SourceReport()
    content = _whole_content(file)
    if content is not None:
        return _layout_of_lines(read_lines(io.BytesIO(content), file.path, unused_report, cut=True))
    # The beginning of the file is read a second time. `open_file` ends the block at a file that is no text, of which
    # the layout does not matter.
    layout: _Layout = "blank_lines"
    with open_file(file.path, unused_report) as stream:
        layout = _layout_of_lines(read_lines(stream, file.path, unused_report, cut=True))
    return layout  # noqa: RET504


def _whole_content(file: OpenFile) -> bytes | None:
    """Return the content of a file that is in the buffer as a whole; None where more may follow."""
    if not file.start.at_start or not isinstance(file.stream, io.BufferedReader):
        return None
    buffered = file.stream.peek(opening.BUFFER_BYTES)
    is_whole = len(buffered) < opening.BUFFER_BYTES and opening.damage_of(file.stream) is None
    return buffered if is_whole else None


def _layout_of_lines(lines: Iterable[FoundText]) -> _Layout:
    """Return the layout of a file that begins with some lines."""
    lines_with_text = 0
    # A blank line in front of the first text separates nothing.
    has_blank_line_behind_text = False
    has_carriage_return = False
    for text, end, number in lines:
        paragraph = text.strip()
        if not paragraph:
            has_blank_line_behind_text = lines_with_text > 0
        elif has_blank_line_behind_text:
            return "blank_lines"
        else:
            lines_with_text += 1
            has_carriage_return = has_carriage_return or "\r" in paragraph
        is_judged = number >= PROBED_LINES or end >= limits.LONGEST_LINE
        if is_judged:
            return "blank_lines" if has_blank_line_behind_text else "lines"
    # All of the file was looked at, and blank lines stand at most in front of its text and behind it.
    if lines_with_text > 1:
        return "one_document"
    return "cr_lines" if has_carriage_return else "blank_lines"
