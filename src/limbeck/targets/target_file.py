"""`TargetFile`: a file with texts and what a teacher said of each, and its rows as the readers of corpora give them.

The file is a table (`.parquet`, `.jsonl`, `.csv` and others that labelled corpora read), a data set of the Hub, or an
array (`.npy`) beside a text file with as many lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.files.lines import read_lines
from limbeck.corpus.files.opening import open_file
from limbeck.corpus.messages import first_line, list_columns, safe_name
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.file_sources import expand_home
from limbeck.corpus.sources.named_sources import check_source, open_rows
from limbeck.corpus.sources.source_kinds import RowSource
from limbeck.errors import CorpusError

ARRAY = ".npy"
"""Suffix of an array, which has no texts: these are the lines of a text file."""
_TEXT = "text"
_TARGET = "target"
"""Columns of the rows of an array."""

Form: TypeAlias = Literal["vector", "probabilities", "logits", "labels", "score"]
"""What a teacher said of a text: its vector, the probabilities or logits of classes, one class, or one number."""


@dataclass(frozen=True)
class TargetFile:
    """A file of texts and targets.

    Args:
        place: The file, or a data set of the Hub.
        text: The column of the texts; for an array the text file.
        column: The column of the targets; None for an array, whose rows are the targets.
        form: What the targets are.
        pair: The column of the second texts, for targets of pairs.
        classes: The names of the classes, in the order of their probabilities or logits.
    """

    place: str
    text: str
    column: str | None
    form: Form
    pair: str | None = None
    classes: tuple[str, ...] = ()

    @property
    def is_array(self) -> bool:
        """Whether the file has targets alone."""
        return is_array(self.place)

    @property
    def stream(self) -> str:
        """The name of the targets as a stream of the teacher."""
        return "vector" if self.form == "vector" else "logits"


class TargetRow(NamedTuple):
    """One row of a file, unchecked.

    Args:
        where: Its place, for messages.
        text: The text.
        pair: The second text; None without pairs.
        value: The target.
        class_names: The names of the numbers in the column of the targets, where the file states them.
    """

    where: str
    text: Any
    pair: Any
    value: Any
    class_names: tuple[str, ...] = ()


def is_array(place: str) -> bool:
    """Whether a place is that of an array."""
    return place.endswith(ARRAY)


def check_target_file(file: TargetFile) -> None:
    """Refuse a file that does not exist; a data set of the Hub is looked for when it is read.

    Raises:
        CorpusError: naming the file.
    """
    if not file.is_array:
        try:
            check_source(file.place)
        except CorpusError as error:
            raise CorpusError(f"teacher.targets: {error}") from None
        return
    for place in (file.place, file.text):
        if not expand_home(place).is_file():
            raise CorpusError(
                f"There is no file '{safe_name(place)}'; an array of targets needs a text file with one line for "
                "each of its rows."
            )


def source_of(file: TargetFile) -> RowSource:
    """Return the rows of a file as a source."""
    if file.is_array:
        return _ArrayBesideText(expand_home(file.place), expand_home(file.text))
    return open_rows(file.place)


def read_target_rows(file: TargetFile, source: RowSource, report: SourceReport) -> Iterator[TargetRow]:
    """Iterate over the rows of a file.

    Args:
        file: The file.
        source: Its rows, from `source_of`.
        report: Receives what the readers skip or repair.

    Raises:
        CorpusError: for a file that cannot be read, and a row without one of the columns.
    """
    # An array has no columns. In the source that `source_of` makes of it they are called `_TEXT` and `_TARGET`.
    text_column = _TEXT if file.is_array else file.text
    target_column = _TARGET if file.column is None else file.column
    for row in source.rows(report):
        for name in (text_column, file.pair, target_column):
            if name is not None and name not in row.values:
                raise CorpusError(
                    f"{safe_name(row.where)} has no column '{safe_name(name)}', only {list_columns(row.values)}; "
                    "name the columns of the texts and of the teacher's outputs in the keys of 'teacher'."
                )
        pair = None if file.pair is None else row.values[file.pair]
        yield TargetRow(
            where=row.where,
            text=row.values[text_column],
            pair=pair,
            value=row.values[target_column],
            class_names=row.class_names.get(target_column, ()),
        )


@dataclass(frozen=True)
class _ArrayBesideText:
    """The rows of an array with the lines of a text file, as a source of rows.

    Args:
        array: The array, `[rows, width]`, or `[rows]` for one number of each text.
        texts: The text file.
    """

    array: Path
    texts: Path

    def fingerprint(self) -> Any:
        """Return the names of both files, whose content is compared too: see `read_files`."""
        return ["array", str(self.array.resolve()), str(self.texts.resolve())]

    def read_files(self) -> list[Path]:
        """Return both files."""
        return [self.array, self.texts]

    def rows(self, report: SourceReport, progress: object = None, *, of_words: bool = False) -> Iterator[PlacedRow]:
        """Iterate over the lines of the text file, each with its row of the array; see `RowSource`.

        Args:
            report: Receives what the reader of lines skips or repairs.
            progress: Not used; a `RowSource` takes it.
            of_words: Not used either, since targets are of texts.

        Raises:
            CorpusError: for a file that is no array of numbers, and other numbers of rows and lines.
        """
        values = self._load()
        lines = 0
        with open_file(self.texts, report) as stream:
            for line in read_lines(stream, self.texts, report):
                lines = line.line
                # Lines beyond the array are read all the same, for their number in the message.
                if lines <= len(values):
                    where = f"{self.texts}:{lines}"
                    yield PlacedRow(where, {_TEXT: line.text, _TARGET: values[lines - 1]})
        if lines != len(values):
            raise CorpusError(
                f"'{safe_name(self.array)}' has {len(values):,} rows, but '{safe_name(self.texts)}' has {lines:,} "
                "lines; give one line of text for each row of the array."
            )

    def _load(self) -> Any:
        """Return the array as a memory map."""
        try:
            values = np.load(self.array, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise CorpusError(f"'{safe_name(self.array)}' is no array of NumPy ({first_line(error)}).") from None
        is_of_numbers = np.issubdtype(values.dtype, np.number) and not np.iscomplexobj(values)
        if not is_of_numbers or values.ndim not in (1, 2):
            raise CorpusError(
                f"'{safe_name(self.array)}' is an array of {values.dtype} of the shape {list(values.shape)}; give "
                "an array of numbers with one row for each text."
            )
        return values
