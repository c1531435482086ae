"""`ParallelFiles`: sentences and their translations, in files of aligned lines, in a table or in a TMX file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.aligned_lines import read_aligned_lines
from limbeck.corpus.files.file_kinds import UNKNOWN_LAYOUT, PlacedRow, TableLayout, suffix_of
from limbeck.corpus.files.file_readers import read_rows, readable_suffixes
from limbeck.corpus.messages import list_columns, safe_name
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

INCOMPLETE = "sentence without a translation in every language, left out"
TMX = ".tmx"


@dataclass(frozen=True)
class ParallelFiles:
    """Sentences in several languages.

    Args:
        languages: The languages, two or more.
        paths: A text file of each language with aligned lines, or one file of all.
        columns: Of one table of all languages the column of each: its name, or the number of its field, from 1, where
            the table has no header. Empty where the columns have the names of the languages. A TMX file has none.
    """

    languages: tuple[str, ...]
    paths: tuple[FilePath, ...]
    columns: tuple[str | int, ...] = ()

    def rows(self, report: SourceReport) -> Iterator[PlacedRow]:
        """Iterate over the sentences that every language has, as rows with a text of each language.

        Args:
            report: Receives everything that is skipped, and sentences that a language lacks.

        Raises:
            CorpusError: for aligned files with unequal numbers of lines, a table without a column, and a file that
                cannot be read.
        """
        for row in self._all_rows(report):
            sentences = {}
            for language, column in zip(self.languages, self._column_names(), strict=True):
                sentences[language] = self._sentence_of(row, column)
            if all(sentences.values()):
                yield PlacedRow(row.where, sentences)
            else:
                report.note(INCOMPLETE, row.where)

    def _all_rows(self, report: SourceReport) -> Iterator[PlacedRow]:
        """Iterate over the rows of the files as they are."""
        if len(self.paths) > 1:
            yield from read_aligned_lines(dict(zip(self.languages, self.paths, strict=True)), report)
            return
        (path,) = self.paths
        suffixes = readable_suffixes("rows")
        if suffix_of(path) not in suffixes:
            raise CorpusError(
                f"'{safe_name(path)}' has an unknown file type: give a file that ends with {', '.join(suffixes)} "
                "(.gz, .xz or .zst may follow), or a text file for each language."
            )
        yield from read_rows(path, report, layout=self._layout())

    def _layout(self) -> TableLayout:
        """Return the layout of a table: fields that are given by number have their numbers as names."""
        numbers = [column for column in self.columns if isinstance(column, int)]
        if not numbers:
            return UNKNOWN_LAYOUT
        return TableLayout(header=tuple(str(number) for number in range(1, max(numbers) + 1)))

    def _column_names(self) -> tuple[str, ...]:
        """Return the name that the column of each language has in the rows."""
        if len(self.paths) == 1 and suffix_of(self.paths[0]) == TMX:
            return tuple(language.replace("_", "-").lower() for language in self.languages)
        return tuple(str(column) for column in self.columns) or self.languages

    def _sentence_of(self, row: PlacedRow, column: str) -> str:
        """Return the sentence in a column, without spaces around it; empty where the row has none.

        Raises:
            CorpusError: for a table without the column, and for a value that is no text.
        """
        if column not in row.values and suffix_of(self.paths[0]) != TMX:
            raise CorpusError(
                f"{row.where} has no column '{column}'; it has {list_columns(row.values)}. Set 'columns' to the "
                "column of each language or, if the table has no header, to their numbers, as in [1, 2]."
            )
        value = row.values.get(column)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise CorpusError(f"{row.where} has no text in its column '{column}', but {value!r:.40}.")
        return value.strip()
