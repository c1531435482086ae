"""The Hub source: a data set of the Hugging Face Hub, streamed document by document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import datasets

from limbeck.corpus.document import Document, clean_text
from limbeck.corpus.rows import PlacedRow, class_names
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

_NAME = re.compile(
    r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.+-]+))?(?:@(?P<split>[^#\s]+))?(?:#(?P<revision>\S+))?"
)
PREFIX = "hub:"


class HubDataset:
    """A text column of a Hub data set.

    Args:
        name: `owner/name[:config][@split][#revision]`; the split is `train` unless said otherwise. Without a
            revision the data set is taken as it is on the day the cache is made.
        text_column: The column that holds the text.

    Raises:
        CorpusError: if the name is not of that form.
    """

    def __init__(self, name: str, text_column: str) -> None:
        parts = _NAME.fullmatch(name)
        if parts is None:
            raise CorpusError(
                f"'{name}' is not the name of a Hub data set: write owner/name, or "
                f"owner/name:config@split#revision with any of the last three."
            )
        self.name: str = parts["name"]
        self.config: str | None = parts["config"]
        self.split: str = parts["split"] or "train"
        self.revision: str | None = parts["revision"]
        self._text_column = text_column

    def fingerprint(self) -> Any:
        """Return what decides the text."""
        return ["hub", self.name, self.config, self.split, self.revision, self._text_column]

    def documents(
        self, report: SourceReport, progress: Callable[[int, int | None], None] | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents, streaming: nothing is kept on disk.

        Args:
            report: Receives the rows without text.
            progress: Called with the number of rows read and `None`.

        Raises:
            CorpusError: if the data set cannot be reached, or has no such column.
        """
        column = self._text_column
        for where, row, _ in self.rows(progress):
            if column not in row:
                raise CorpusError(
                    f"The data set '{self.name}' has no column '{column}': "
                    f"set text_column to one of {', '.join(sorted(row))}."
                )
            text = row[column]
            if not isinstance(text, str):
                report.note("empty document" if text is None else f"column '{column}' that is not text", where)
            elif cleaned := clean_text(text):
                yield Document(cleaned)
            else:
                report.note("empty document", where)

    def rows(self, progress: Callable[[int, int | None], None] | None = None) -> Iterator[PlacedRow]:
        """Iterate over the rows, streaming: nothing is kept on disk.

        Args:
            progress: Called with the number of rows read and `None`.

        Raises:
            CorpusError: if the data set cannot be reached.
        """
        try:
            rows = datasets.load_dataset(
                self.name, self.config, split=self.split, revision=self.revision, streaming=True
            )
            names = class_names(rows.features) if isinstance(rows, datasets.IterableDataset) else {}
            for number, row in enumerate(rows, start=1):
                if progress is not None and number % 1000 == 0:
                    progress(number, None)
                yield PlacedRow(f"{self.name}:{number}", row, names)
        except Exception as error:  # The Hub's client raises of many kinds: network, names, formats.
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise CorpusError(f"Cannot read the Hub data set '{self.name}': {reason}") from error


def is_hub_name(text: str) -> bool:
    """Whether `text` has the form of a Hub data set name."""
    return _NAME.fullmatch(text) is not None
