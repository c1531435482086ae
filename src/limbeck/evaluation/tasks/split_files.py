"""Files of a task's splits: finding them, and reading their rows.

A corpus may skip lines that cannot be read. A split may not, since its score would be that of other rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from limbeck.corpus.files import addresses, file_kinds, file_readers, json_files, lines, opening, parquet_files
from limbeck.corpus.files.file_kinds import OpenFile, PlacedRow, Quotes, TableLayout
from limbeck.corpus.files.parallel_files import ParallelFiles
from limbeck.corpus.files.saved_datasets import is_saved, is_saved_split, saved_files
from limbeck.corpus.files.table_fields import read_tab_fields
from limbeck.corpus.files.uneven_rows import UnevenRows
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.settings.parallel import ParallelSpec
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.sources import FileSource, HubPlace, PossibleFile
from limbeck.kinds.columns import Columns
from limbeck.kinds.registry import KINDS
from limbeck.kinds.split_rows import SplitRows
from limbeck.kinds.task import SplitFacts, Task

_FATAL_PROBLEMS = (
    json_files.INVALID_JSON,
    json_files.NO_OBJECT,
    opening.NOT_TEXT,
    opening.DAMAGED,
    lines.BAD_BYTES,
    lines.LONG_LINE,
)
"""Notes in a report, by which lines were skipped, that make a split unusable."""
_ENDINGS = ("", *addresses.COMPRESSIONS)
"""What may follow the name of a file: nothing, or the ending of a compressed one."""
_READ_WHOLE = ".json"
"""Ending of files that have to be read to the end before their first row is known."""


class SplitFile(NamedTuple):
    """A file of a split that is there, and its layout."""

    path: Path
    source: FileSource


def find_file(files: Sequence[PossibleFile], folders: Sequence[Path]) -> SplitFile | None:
    """Return the first of several files that is there, plain or compressed.

    Args:
        files: Possible files, in the order of preference; see `TaskDefinition.paths`.
        folders: In their order, each before its subfolders, in alphabetical order; a name with `*` is looked for in
            the folders alone. A folder may also be that of the task itself: the file `STS-B/dev.tsv` is found as
            `dev.tsv` in a folder `STS-B` or `GLUE-STS-B`.
    """
    places = _with_subfolders(folders)
    for file in files:
        is_pattern = "*" in file.name
        if is_pattern:
            # A pattern is for the folders themselves: in a subfolder it could match the file of something else.
            path = _only_match(file.name, folders)
        else:
            path = _first_there(file.name, places) or _in_folder_of_task(file.name, folders)
        if path is not None:
            return SplitFile(path, file.source)
    return None


def find_saved_split(hub_place: HubPlace, task_folders: Sequence[str], folders: Sequence[Path]) -> SplitFile | None:
    """Return the folder that `save_to_disk` of `datasets` wrote for a split of the Hub, with the columns of the Hub.

    Args:
        hub_place: The split on the Hub.
        task_folders: The folders that files of the task may lie in, see `TaskDefinition.folders`.
        folders: In their order, each before its subfolders. A split without a folder before its name is looked for in
            the folders alone: in a subfolder it could be the split of another task.
    """
    _, _, name_without_owner = hub_place.data_set.name.rpartition("/")
    for name in hub_place.saved_names(task_folders):
        places = folders
        has_folder = "/" in name
        if has_folder:
            places = _with_subfolders(folders)
        for place in places:
            path = place / name
            if is_saved_split(path, name_without_owner, hub_place.hub_split.config):
                return SplitFile(path, FileSource(path=(name,), columns=hub_place.data_set.columns))
    return None


def is_read_whole(path: Path) -> bool:
    """Whether the first row of a file is known only after all of it was read."""
    return file_kinds.suffix_of(path) == _READ_WHOLE


def read_split_file(
    path: Path,
    source: FileSource,
    report: SourceReport,
    *,
    quotes: Quotes | None = None,
    of_words: bool = False,
) -> Iterator[PlacedRow]:
    """Iterate over the rows of a split's file.

    Args:
        path: The file.
        source: The layout of the file: a header, where the file has none, and the values that its rows must have.
        report: Receives notes on lines that are left out.
        quotes: Quotation marks in tables between tabs, see `TableLayout`.
        of_words: Read a table as sentences of tagged words; see `limbeck.corpus.files.file_readers.read_rows`.

    Raises:
        CorpusError: if the file cannot be read as a whole, or is of no known kind.
    """
    suffixes = file_readers.readable_suffixes("rows")
    rows: Iterator[PlacedRow]
    if is_saved(path):
        rows = chain.from_iterable(file_readers.read_rows(file, report) for file in saved_files(path))
    elif source.header:
        rows = _headless_rows(path, TableLayout(source.header, quotes), report)
    elif file_kinds.suffix_of(path) not in suffixes:
        raise CorpusError(
            f"'{path}' has an unknown file type: give a file that ends with {', '.join(suffixes)} (.gz, .xz or "
            ".zst may follow)."
        )
    else:
        rows = file_readers.read_rows(path, report, of_words=of_words, layout=TableLayout(quotes=quotes))
    for row in rows:
        # A file may hold rows of several splits.
        belongs_to_split = all(row.values.get(field) == value for field, value in source.only.items())
        if belongs_to_split:
            yield row
    check_whole(str(path), report)


def read_parallel_files(parallel: ParallelSpec, paths: Sequence[Path], report: SourceReport) -> Iterator[PlacedRow]:
    """Iterate over sentences and their translations, as rows with a text of each language.

    Args:
        parallel: The languages, and the layout of the files.
        paths: The files, in the order in which it names them.
        report: Receives sentences that a language lacks.

    Raises:
        CorpusError: if the files cannot be read as a whole, or have unequal numbers of lines.
    """
    yield from ParallelFiles(parallel.all_languages, tuple(paths), tuple(parallel.columns or ())).rows(report)
    check_whole(str(paths[0]), report)


def check_whole(place: str, report: SourceReport) -> None:
    """Refuse the rows of a split if some of their source was skipped.

    Args:
        place: The source.
        report: What was skipped.

    Raises:
        CorpusError: if a corpus may pass it over and a split may not.
    """
    for problem in _FATAL_PROBLEMS:
        if problem in report.counts:
            raise CorpusError(f"'{place}' cannot be read as a whole: {problem} ({report.examples[problem][0]}).")


def read_split_of_hub(place: HubPlace) -> Iterator[PlacedRow]:
    """Iterate over the rows of a split, downloaded as a whole and kept in the cache of `datasets`.

    Args:
        place: The data set, its split, and the configuration that has it.

    Raises:
        CorpusError: if the data set cannot be reached, or has no such configuration or split.
    """
    import datasets

    data_set = place.data_set
    config = place.hub_split.config
    split_name = place.hub_split.split
    title = data_set.name if config is None else f"{data_set.name} {config}"
    try:
        rows = datasets.load_dataset(data_set.name, config, split=split_name, revision=data_set.revision)
    except Exception as error:
        # The Hub's client raises errors of many types: network, names, formats. Their first line is the reason.
        reason_lines = str(error).splitlines() or [type(error).__name__]
        raise CorpusError(
            f"Cannot load the split '{split_name}' of the Hub data set '{title}': {reason_lines[0].rstrip('.')}. "
            "Give a folder with the files in its place (--data DIR, or corpus.data in a recipe: --set corpus.data=DIR)."
        ) from error
    class_names = parquet_files.class_names(rows.features)
    for number, row in enumerate(rows, start=1):
        yield PlacedRow(f"{title} {split_name}:{number}", row, class_names)


def read_labelled_rows(
    placed_rows: Iterable[PlacedRow],
    task: Task,
    facts: SplitFacts,
    columns: Columns,
    report: SourceReport,
    *,
    most: int | None = None,
    columns_of_recipe: bool = False,
) -> list[LabelledRow]:
    """Return the rows of a split as its task has them, in the order of the source; documents of a query together.

    Args:
        placed_rows: The source's rows.
        task: The task, which decides the columns that a row must have.
        facts: The facts of the split: whether it is labelled, and its language.
        columns: Names of the columns of text, label and answers.
        report: Receives the rows that are left out and the answers that are moved.
        most: Rows of the source that are read; None for all.
        columns_of_recipe: Whether a recipe names the columns.

    Raises:
        CorpusError: if a row lacks a column or a label, has a label that is none of the task's, or is a question with
            the id of an earlier one.
    """
    kind = KINDS[task.kind]
    source = SplitRows(task, facts, columns, report, columns_of_recipe=columns_of_recipe)
    kind.check_source(source)
    # Some labels can be read in two ways, between which all rows together decide, even those that are not read below.
    if kind.looks_ahead(source):
        placed_rows = list(placed_rows)
        kind.look_ahead(placed_rows, source)
    rows: list[LabelledRow] = []
    for placed_row in islice(placed_rows, most):
        # A row without an id gets the number of rows before it as its id.
        source.count = len(rows)
        rows += kind.read(placed_row, source)
    return list(kind.arrange(rows, report))


def _with_subfolders(folders: Sequence[Path]) -> list[Path]:
    """Return each folder before its subfolders, which are in alphabetical order."""
    places: list[Path] = []
    for folder in folders:
        places += [folder, *sorted(folder.glob("*/"))]
    return places


def _only_match(pattern: str, folders: Sequence[Path]) -> Path | None:
    """Return the one file that a name with `*` stands for; a folder with several such files has none."""
    for folder in folders:
        for ending in _ENDINGS:
            matches = sorted(folder.glob(f"{pattern}{ending}"))
            if len(matches) == 1 and matches[0].is_file():
                return matches[0]
    return None


def _first_there(name: str, places: Sequence[Path]) -> Path | None:
    """Return the first file of a name, place by place."""
    for place in places:
        for ending in _ENDINGS:
            path = place / f"{name}{ending}"
            # A name may be too long for any file.
            with suppress(OSError):
                if path.is_file() or is_saved(path):
                    return path
    return None


def _in_folder_of_task(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the file of a name such as `STS-B/dev.tsv` where one of the folders is that `STS-B` itself."""
    task_folder, _, rest = name.partition("/")
    if not rest:
        return None
    # `GLUE-STS-B` and `glue_sts-b` are folders of the task too.
    ending = re.compile(rf"(.*[-_. ])?{re.escape(task_folder)}", re.IGNORECASE)
    folders_of_task = [folder for folder in folders if ending.fullmatch(folder.absolute().name)]
    return _first_there(rest, folders_of_task)


def _headless_rows(path: Path, layout: TableLayout, report: SourceReport) -> Iterator[PlacedRow]:
    """Yield the rows of a tab-separated table without a header, whatever the name of its file ends with."""
    with opening.open_file(path, report) as stream:
        # No column of text is read: the rows have fields.
        file = OpenFile(stream, path, text_column="", report=report, layout=layout)
        uneven_rows = UnevenRows(file, len(layout.header))
        for row in read_tab_fields(file):
            if row.fields and uneven_rows.has_fields(row):
                # Fields behind those of the header are skipped.
                yield PlacedRow(f"{path}:{row.line}", dict(zip(layout.header, row.fields, strict=False)))
        uneven_rows.refuse_many()
