"""`TextLines`: the lines of text files as rows without labels.

A teacher that was fine-tuned for a task can teach its scores on any text. Tables have a row a line with named columns;
text files, pages and docstrings have texts alone, of which each line becomes a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.progress import StepProgress
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.file_sources import Files
from limbeck.corpus.sources.source_kinds import Source, files_of


@dataclass(frozen=True)
class TextLines:
    """The lines of a source of documents, as rows with one column.

    Args:
        name: Name of the source, for messages.
        source: The source of documents.
        column: The column that each line fills.
    """

    name: str
    source: Source
    column: str

    def fingerprint(self) -> Any:
        """Return the fingerprint of the source, apart from that of the same files as tables."""
        return ["lines", self.source.fingerprint()]

    def read_files(self) -> Sequence[FilePath]:
        """Return the files of the source; none where it has no files."""
        return files_of(self.source)

    def rows(
        self, report: SourceReport, progress: StepProgress | None = None, *, of_words: bool = False
    ) -> Iterator[PlacedRow]:
        """Iterate over a row for each line that is not empty.

        Args:
            report: Receives everything that is skipped or repaired.
            progress: Called as reading advances.
            of_words: Not read: a line is a whole sentence for every kind of task.
        """
        # Every line is a row: how a text file separates its documents does not matter, and nothing is noted of it.
        source = self.source
        if isinstance(source, Files):
            source = replace(source, separator="line")
        number = 0
        for document in source.documents(report, progress):
            for line in document.text.splitlines():
                if line.strip():
                    number += 1
                    yield PlacedRow(f"line {number} of {self.name}", {self.column: line})
