"""Files of splits: where they are, and their rows, which are read as a whole or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from limbeck.corpus.files import addresses, file_kinds, file_readers, lines, opening, parquet_files
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.sources import FileSource, HubSource, HubSplit

_FATAL = (
    "line of invalid JSON",
    "JSON value that is not an object",
    "file not in UTF-8, skipped",
    "damaged file, read up to the damage",
    "line with bytes that are not UTF-8",
)
"""What a corpus may pass over and a split may not: its score would be of other rows."""


def find_file(names: Sequence[tuple[str, FileSource]], folders: Sequence[Path]) -> tuple[Path, FileSource] | None:
    """Return the first file that is there, and its layout.

    Args:
        names: In the order of preference, each also compressed; see `TaskDefinition.paths`.
        folders: In their order, each before its subfolders, in alphabetical order; a name with `*` is looked for in
            the folders alone.
    """
    places: list[Path] = []
    for folder in folders:
        places += [folder, *sorted(folder.glob("*/"))]
    for (name, source), place, ending in itertools.product(names, places, ("", *addresses.COMPRESSIONS)):
        if "*" in name:
            matches = sorted(place.glob(f"{name}{ending}")) if place in folders else []
            if len(matches) == 1 and matches[0].is_file():
                return matches[0], source
            continue
        path = place / f"{name}{ending}"
        with suppress(OSError):  # A name too long for any file.
            if path.is_file():
                return path, source
    return None


def read_split_file(
    path: Path, source: FileSource, report: SourceReport, *, of_words: bool = False
) -> Iterator[PlacedRow]:
    """Iterate over the rows of a split's file.

    Args:
        path: The file.
        source: Its header, where the file has none, and the rows to take.
        report: Receives lines that are left out.
        of_words: Read a table as sentences of tagged words; see `limbeck.corpus.files.file_readers.read_rows`.

    Raises:
        CorpusError: if the file cannot be read as a whole, or is of no known kind.
    """
    suffixes = file_readers.readable_suffixes("rows")
    if source.header:
        rows = _headless_rows(path, source.header, report)
    elif file_kinds.suffix_of(path) not in suffixes:
        raise CorpusError(f"'{path}' is not of a known kind: give {', '.join(suffixes)}, also with .gz, .xz or .zst.")
    else:
        rows = file_readers.read_rows(path, report, of_words=of_words)
    for row in rows:
        if all(row.values.get(field) == value for field, value in source.only.items()):
            yield row
    check_whole(str(path), report)


def check_whole(place: str, report: SourceReport) -> None:
    """Refuse a split of whose source something was skipped.

    Args:
        place: The source.
        report: What was skipped.

    Raises:
        CorpusError: if a corpus may pass it over and a split may not.
    """
    for problem in _FATAL:
        if problem in report.counts:
            raise CorpusError(f"'{place}' cannot be read as a whole: {problem} ({report.examples[problem][0]}).")


def _headless_rows(path: Path, header: tuple[str, ...], report: SourceReport) -> Iterator[PlacedRow]:
    """Yield the rows of a tab-separated table without a header; a quotation mark is a character like any other."""
    with opening.open_file(path, report) as stream:
        for text, _, number in lines.read_lines(stream, path, report):
            if not text:
                continue
            where = f"{path}:{number}"
            fields = text.split("\t")
            if len(fields) < len(header):
                report.note("row with too few fields", where)
            else:
                yield PlacedRow(where, dict(zip(header, fields, strict=False)))


def read_split_of_hub(source: HubSource, split: HubSplit) -> Iterator[PlacedRow]:
    """Iterate over the rows of a split, downloaded as a whole and kept in the cache of `datasets`.

    Args:
        source: The data set.
        split: Its split, and the configuration that has it.

    Raises:
        CorpusError: if the data set cannot be reached, or has no such configuration or split.
    """
    name = source.name if split.config is None else f"{source.name} {split.config}"
    import datasets

    try:
        rows = datasets.load_dataset(source.name, split.config, split=split.split, revision=source.revision)
    except Exception as error:  # The Hub's client raises of many kinds: network, names, formats.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CorpusError(
            f"Cannot load the split '{split.split}' of the Hub data set '{name}': {reason.rstrip('.')}. "
            "Give a folder with its files instead."
        ) from error
    names = parquet_files.class_names(rows.features)
    for number, row in enumerate(rows, start=1):
        yield PlacedRow(f"{name} {split.split}:{number}", row, names)
