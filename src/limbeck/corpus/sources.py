"""Sources: what a recipe or a command line names, as documents or labelled rows, read from any position on.

`SOURCES` is the one list of the kinds of sources; each says which strings name one, and how it is opened and checked.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import escape, has_magic, iglob
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from limbeck.core.beside import tried_beside
from limbeck.core.collecting import without_collecting
from limbeck.core.registry import Registry
from limbeck.corpus import documents, installed_docs, readers
from limbeck.corpus.documents import Cursor, Document, FoundText, SourceReport, Step, first_line, one_line
from limbeck.corpus.listing import list_files, match_pattern, supported_types
from limbeck.corpus.opening import UNKNOWN_SIZE, FilePath, file_size, file_system, is_compressed, is_remote
from limbeck.corpus.readers import FILE_KINDS, PlacedRow, suffix_of
from limbeck.errors import CorpusError

if TYPE_CHECKING:
    import datasets

_HUB_NAME = re.compile(
    r"(?P<name>\w[\w.-]*/\w[\w.-]*)(?::(?P<config>[\w.+-]+))?(?:@(?P<split>[^#\s]+))?(?:#(?P<revision>\S+))?"
)
_HUB = "hub:"
_GLOB_CHARACTERS = frozenset("*?[")
_SIZED_FILES = 16
_STEP_EVERY = 1000
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# What a pattern is made of: placeholders, and wildcards as regular expressions.
_IN_PATTERN = re.compile(r"(\{\w+\}|\*\*/?|\*|\?|\[[^]]*\])")
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Source(Protocol):
    """A source of documents, in shards."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the documents may have changed."""

    def documents(
        self, report: SourceReport, progress: Step | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all shards, from `cursor` on, which is moved behind each before it is given."""


@runtime_checkable
class ShardedSource(Source, Protocol):
    """A source whose shards can be read one by one, as streams need it."""

    def shards(self) -> int:
        """Return the number of shards."""

    def read(self, shard: int, cursor: Cursor, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one shard, from `cursor` on, which is moved behind each before it is given."""

    def size(self) -> int | None:
        """Return about how many bytes of text there are, or `None` if that is not known."""


class RowSource(Protocol):
    """A source of labelled rows."""

    def fingerprint(self) -> Any:
        """Return plain values that change when the rows may have changed."""

    def rows(
        self, report: SourceReport, progress: Step | None = None, *, of_words: bool = False
    ) -> Iterator[PlacedRow]:
        """Iterate over the rows; `of_words`: over sentences of tagged words, where a layout may be taken for either."""


@dataclass(frozen=True)
class SourceKind:
    """A kind of source.

    Args:
        form: How its strings are written, for messages; empty for paths.
        matches: Whether a string names such a source.
        open: Opens the source that a string names: as documents of a column of text, or with `None` as labelled rows;
            the number is that of the processes for sources that are read in parallel.
        check: Refuses a string that names nothing, before any source is opened; `None` leaves that to opening.
        is_labelled: Whether it has labelled rows.
    """

    form: str
    matches: Callable[[str], bool]
    open: Callable[[str, str | None, int | None], Any]
    check: Callable[[str], None] | None = None
    is_labelled: bool = True


SOURCES: Registry[SourceKind] = Registry("kind of source", CorpusError)
"""Name → kind of source. The last one registered is asked first; files, which any string may name, come last."""


def source_kind(text: str) -> SourceKind:
    """Return the kind of source that a string names."""
    return next(kind for _, kind in reversed([*SOURCES.items()]) if kind.matches(text))


def open_source(text: str, text_column: str = "text", workers: int | None = None) -> Source:
    """Open the source that a string names.

    Args:
        text: A file, folder or glob pattern; an address such as `https://host/file.jsonl` or `s3://bucket/*.parquet`;
            `hub:owner/name[:config][@split][#revision]`, or a bare `owner/name` where there is no such path;
            `installed-docs`, or `installed-docs:FOLDER` for the Python files of one folder; `installed-text` the same,
            with the pages beside them.
        text_column: Column of the text, for kinds that have columns.
        workers: Processes for sources that are read in parallel.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    source: Source = source_kind(text).open(text, text_column, workers)
    return source


def open_rows(text: str, header: Sequence[str] = ()) -> RowSource:
    """Open the source of labelled rows that a string names.

    Args:
        text: A file, folder, glob pattern or address; `hub:owner/name[:config][@split][#revision]`, or a bare
            `owner/name` where there is no such path. A `.txt` file is read as TSV where it is named, and skipped in
            a folder.
        header: Names of the fields of its tables, where these have no header.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    kind = source_kind(text)
    if not kind.is_labelled:
        raise CorpusError(f"The source '{text}' has no labels: leave out the task, or give labelled rows.")
    source: RowSource = kind.open(text, None, None)
    return replace(source, header=tuple(header)) if isinstance(source, Files) and header else source


def check_source(text: str, content: readers.Content | None = None) -> None:
    """Refuse a path that is not there before models are loaded; other kinds are checked when they are read.

    Args:
        text: The source string.
        content: What its files are to be read as; None says nothing of them.

    Raises:
        CorpusError: if the string names nothing, or with `content` only files that are empty or of other kinds.
    """
    kind = source_kind(text)
    if kind.check is not None:
        kind.check(text)
    column = "" if content == "texts" else None
    if content is not None and _is_here(text) and find_files(text, column).stored_size() == 0:
        raise CorpusError(f"The source '{one_line(text)}' holds no {content}: its files are empty.")


class HubDataset:
    """A data set of the Hugging Face Hub, streamed: nothing is kept on disk.

    Args:
        name: `owner/name[:config][@split][#revision]`; the split is `train` unless said otherwise. Without a
            revision the data set is taken as it is on the day the cache is made.
        text_column: The column of the text; empty for labelled rows.

    Raises:
        CorpusError: if the name is not of that form.
    """

    def __init__(self, name: str, text_column: str) -> None:
        parts = _HUB_NAME.fullmatch(name)
        if parts is None:
            raise CorpusError(
                f"'{name}' is not the name of a Hub data set: write owner/name, or "
                "owner/name:config@split#revision, where the last three are optional."
            )
        self.name: str = parts["name"]
        self.config: str | None = parts["config"]
        self.split: str = parts["split"] or "train"
        self.revision: str | None = parts["revision"]
        self._text_column = text_column
        self._rows: datasets.IterableDataset | None = None  # Opening asks the Hub what files there are.

    def fingerprint(self) -> Any:
        """Return the values that decide the text."""
        return ["hub", self.name, self.config, self.split, self.revision, self._text_column]

    def shards(self) -> int:
        """Return the number of files or other parts that the data set is stored in."""
        return int(self._open().num_shards)

    def size(self) -> None:
        """Return `None`: the Hub does not tell how much text there is."""

    def read(self, shard: int, cursor: Cursor, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one shard; see `ShardedSource`.

        Args:
            shard: Its number.
            cursor: Where to begin; moved behind every document before it is given.
            report: Receives the rows without text.

        Raises:
            CorpusError: if the data set cannot be reached, or has no such column.
        """
        rows = self._open()
        part = rows.shard(num_shards=rows.num_shards, index=shard)
        if cursor.position:
            part.load_state_dict(cursor.position)
        column, number = self._text_column, cursor.line
        report.muted = cursor.within > 0  # Until the text that was begun is found again.
        for row in self._reached(part):
            number += 1
            where = f"{self.name}:{number}" if rows.num_shards == 1 else f"{self.name}:{shard}:{number}"
            if column not in row:
                raise CorpusError(
                    f"The data set '{self.name}' has no column '{column}': set text_column to one of "
                    f"{readers.list_columns(row)}."
                )
            text = documents.text_value(row[column], where, column, report)
            if text is not None:
                yield from documents.split_documents(FoundText(text, part.state_dict(), number), where, cursor, report)

    def documents(
        self, report: SourceReport, progress: Step | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all shards, counted for `progress`; see `read`."""
        yield from _counted(self._documents(report, cursor or Cursor()), progress, "documents")

    def rows(
        self, report: SourceReport, progress: Step | None = None, *, of_words: bool = False
    ) -> Iterator[PlacedRow]:
        """Iterate over the rows, counted for `progress`.

        Raises:
            CorpusError: if the data set cannot be reached.
        """
        rows = self._open()
        names = readers.class_names(rows.features)
        for number, row in enumerate(_counted(self._reached(rows), progress, "rows"), start=1):
            yield PlacedRow(f"{self.name}:{number}", row, names)

    def _documents(self, report: SourceReport, cursor: Cursor) -> Iterator[Document]:
        shards = self.shards()
        while cursor.shard < shards:
            yield from self.read(cursor.shard, cursor, report)
            cursor.move(cursor.shard + 1)

    def _open(self) -> datasets.IterableDataset:
        import datasets

        with _reaching(f"Cannot read the Hub data set '{self.name}'"):
            if self._rows is None:
                self._rows = datasets.load_dataset(
                    self.name, self.config, split=self.split, revision=self.revision, streaming=True
                )
            return self._rows

    def _reached(self, rows: datasets.IterableDataset) -> Iterator[dict[str, Any]]:
        """Iterate over rows; errors of the client become one line."""
        with _reaching(f"Cannot read the Hub data set '{self.name}'"):
            yield from rows


def _counted(items: Iterator[Any], progress: Step | None, unit: str) -> Iterator[Any]:
    if progress is None:
        yield from items
        return
    progress(0, None, unit)
    for number, item in enumerate(items, start=1):
        if number % _STEP_EVERY == 0:
            progress(number, None, unit)
        yield item


@dataclass
class Files:
    """Documents or labelled rows of files, in the order given; every file is a shard.

    Args:
        files: Files of known kinds.
        places: Their paths without links; of remote ones the addresses.
        ignored: Files that were found beside them and are of no known kind.
        text_column: Column of the text, for kinds that have columns; `None` for labelled rows.
        header: Names of the fields of tables without a header.
    """

    files: Sequence[FilePath]
    places: Sequence[str]
    ignored: Sequence[FilePath]
    text_column: str | None
    header: tuple[str, ...] = ()

    def fingerprint(self) -> Any:
        """Return path, size and time of change of every file."""
        column: list[Any] = [] if self.text_column is None else [self.text_column]
        column += [list(self.header)] if self.header else []
        return ["files", *column, list(map(_file_state, self.files, self.places))]

    def shards(self) -> int:
        """Return the number of files."""
        return len(self.files)

    def read(self, shard: int, cursor: Cursor, report: SourceReport) -> Iterator[Document]:
        """Iterate over the documents of one file; see `read_file`."""
        return readers.read_file(self.files[shard], self.text_column or "", report, cursor)

    def stored_size(self) -> int | None:
        """Return the size of all files as they are stored, or `None` if a server does not state one."""
        size = sum(map(file_size, self.files))
        return size if size < UNKNOWN_SIZE else None

    def size(self) -> int | None:
        """Return about how many bytes of text there are, judged by a few of the files; see `text_size`."""
        stored = self.stored_size()
        if stored is None:
            return None
        sample = self.files[:: -(-len(self.files) // _SIZED_FILES)]
        text = sum(readers.text_size(file, self.text_column or "") for file in sample)
        return stored * text // max(sum(map(file_size, sample)), 1)

    def documents(
        self, report: SourceReport, progress: Step | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the documents of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the stored bytes that were read, and those of all files.
            cursor: Where to begin.
        """
        cursor = cursor or Cursor()
        if cursor.shard == 0 and cursor.at_start:
            self._report_ignored(report)
        tell = self._byte_counter(progress, cursor)
        tell()
        while cursor.shard < len(self.files):
            for number, document in enumerate(self.read(cursor.shard, cursor, report), start=1):
                if number % _STEP_EVERY == 0:
                    tell()
                yield document
            cursor.move(cursor.shard + 1)
            tell()

    def rows(
        self, report: SourceReport, progress: Step | None = None, *, of_words: bool = False
    ) -> Iterator[PlacedRow]:
        """Iterate over the rows of all files.

        Args:
            report: Receives bad lines and ignored files.
            progress: Called with the number of files read, the number of all files and their unit.
            of_words: Read tables as sentences of tagged words; see `read_rows`.
        """
        self._report_ignored(report)
        for done, path in enumerate([*self.files, None]):
            if progress is not None:
                progress(done, len(self.files), "files")
            if path is not None:
                yield from readers.read_rows(path, report, of_words=of_words, header=self.header)

    def _report_ignored(self, report: SourceReport) -> None:
        for path in self.ignored:
            report.note("file of another kind, skipped", str(path))

    def _byte_counter(self, progress: Step | None, cursor: Cursor) -> Callable[[], None]:
        """Return a function that reports the stored bytes before the cursor."""
        ends = [0] if progress is None else [0, *accumulate(map(file_size, self.files))]

        def tell() -> None:
            if progress is None:
                return
            done = ends[cursor.shard]
            path = self.files[cursor.shard] if cursor.shard < len(self.files) else None
            # Elsewhere a position does not count stored bytes.
            if cursor.position and path and not is_compressed(path) and not FILE_KINDS[suffix_of(path)].is_binary:
                done = min(done + int(cursor.position), ends[cursor.shard + 1])
            progress(done, ends[-1] if ends[-1] < UNKNOWN_SIZE else None, "bytes")

        return tell


def shards_of(source: Source) -> Any:
    """Return names and sizes of a source's shards, wherever it lies; of one that has no files what it is known by."""
    if not isinstance(source, Files):
        return source.fingerprint()
    names = [PurePosixPath(file) for file in map(str, source.files)]
    # A lone file may have any name.
    place = os.path.commonpath([name.parent for name in names]) if len(names) > 1 else names[0]
    relative = [str(name.relative_to(place)) for name in names]
    return ["files", [[name, file_size(file)] for name, file in zip(relative, source.files, strict=True)]]


def _file_state(file: FilePath, place: str) -> list[Any]:
    """Return resolved path, size and time of change of a file; of a remote one the address and its state there."""
    if isinstance(file, str):
        with _reaching(f"Cannot reach '{one_line(file)}'"):
            system, name = file_system(file)
            return [file, str(system.ukey(name))]
    try:
        stat = file.stat()
        return [place, stat.st_size, stat.st_mtime_ns]
    except OSError as error:
        raise CorpusError(f"Cannot read '{one_line(file)}': {error.strerror}.") from error


@contextmanager
def _reaching(failed: str) -> Iterator[None]:
    """Put what failed before the reason, in one line."""
    try:
        yield
    except Exception as error:  # Each file system and the Hub's client raise other kinds.
        raise CorpusError(f"{failed}: {one_line(first_line(error)).removesuffix('.')}.") from error


@without_collecting()
def find_files(text: str, text_column: str | None = None) -> Files:
    """Find the files that a file, folder, glob pattern or address names.

    Args:
        text: The source string.
        text_column: Column of the text, for kinds that have columns; `None` for labelled rows.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    suffixes = readers.readable_suffixes("rows" if text_column is None else "texts")
    if is_remote(text):
        return Files(*_find_remote(text, suffixes), text_column)
    path = _path_of(text)
    if _is_there(path):
        if text_column is None and path.is_dir():
            suffixes = [suffix for suffix in suffixes if FILE_KINDS[suffix].rows_in_folders]
        return Files(*list_files([path], text, suffixes), text_column)
    if _GLOB_CHARACTERS.intersection(text):
        return Files(*list_files(match_pattern(path), text, suffixes), text_column)
    on_hub = f" For a Hub data set, write '{_HUB}{one_line(text)}'." if _HUB_NAME.fullmatch(text) else ""
    raise CorpusError(f"There is no file, folder or data set '{one_line(text)}'.{_nearby(path)}{on_hub}")


def find_parts(pattern: str) -> dict[str, str]:
    """Find the sources that a pattern of file names stands for: one for each value of its placeholder, sorted.

    `data/{language}.txt.xz`, `data/{language}/` and `data/{language}-*.jsonl` give a source a language. A value is as
    short as can be, and lies within one file or folder name.

    Args:
        pattern: Path or address with one placeholder, once or more often, and any wildcards.

    Returns:
        Value to source.

    Raises:
        CorpusError: if the pattern has no placeholder or several, matches no file, gives one part alone, or does not
            say which part a file belongs to.
    """
    shown = f"mix.by '{one_line(pattern)}'"
    names = list(dict.fromkeys(_PLACEHOLDER.findall(pattern)))
    if len(names) != 1:
        found = f"the placeholders {', '.join(names)}" if names else "no placeholder"
        raise CorpusError(f"{shown} has {found}: write one, as in data/{{language}}.txt.xz, and * for the rest.")
    if source_kind(pattern) is not SOURCES["files"]:
        raise CorpusError(f"{shown} is not a path or address: list other sources in corpus.sources, with weights.")
    if re.search(r"[*?\]]\{|\}[*?[{]", pattern):
        raise CorpusError(f"{shown} does not say where {names[0]} begins and ends: put a / - _ or . beside it.")
    try:
        files = find_files(_PLACEHOLDER.sub("*", pattern), "").files
    except CorpusError as error:
        raise CorpusError(f"{shown}: {error}") from None
    shape = _address_of(pattern) if is_remote(pattern) else str(_path_of(pattern))
    # Where a placeholder is last it is a folder's name: files that are read have a suffix.
    expression = re.compile(_expression_of(shape) + ("/.+" if shape.endswith("}") else "(?:/.*)?"), re.DOTALL)
    matches = [match["value"] for file in files if (match := expression.fullmatch(str(file)))]
    values = sorted(set(matches))
    if len(values) < 2:
        found = f"{names[0]} '{one_line(values[0])}' alone" if values else "no file"
        raise CorpusError(f"{shown} finds {found}: check the pattern, or give a single source without a mix.")
    placeholder = f"{{{names[0]}}}"
    if not has_magic(shape.replace(placeholder, "")):
        return {value: shape.replace(placeholder, value) for value in values}
    parts = {value: shape.replace(placeholder, escape(value)) for value in values}
    if sum(len(find_files(part, "").files) for part in parts.values()) != len(matches):
        raise CorpusError(f"{shown} matches a file in two ways: leave out wildcards, or name the folders.")
    return parts


def stored_size(text: str) -> int | None:
    """Return the size of the files that a string names as they are stored, or `None` where asking needs a network.

    Raises:
        CorpusError: if it names nothing, or nothing that can be read.
    """
    if not _is_here(text):
        return None
    return find_files(text, "").stored_size()


def local_files(sources: Iterable[str]) -> list[Path]:
    """Return the files of this machine that some sources of labelled rows name, resolved.

    Raises:
        CorpusError: for a path that names nothing, or nothing that can be read.
    """
    return [Path(place) for text in filter(_is_here, sources) for place in find_files(text).places]


def _is_here(text: str) -> bool:
    """Whether a string names files of this machine."""
    return source_kind(text) is SOURCES["files"] and not is_remote(text)


def _address_of(text: str) -> str:
    """Return an address as its file system writes those of files."""
    with _reaching(f"Cannot reach '{one_line(text)}'"):
        system, name = file_system(text)
        return str(system.unstrip_protocol(name))


def _expression_of(pattern: str) -> str:
    """Return the regular expression that finds the value of a placeholder in a path that its glob pattern matches."""
    written, again = "", False
    for part in _IN_PATTERN.split(pattern):
        if _PLACEHOLDER.fullmatch(part):
            written += "(?P=value)" if again else "(?P<value>[^/]+?)"
            again = True
        elif _IN_PATTERN.fullmatch(part):
            written += _WILDCARDS.get(part, "[^/]")  # Which letters a class has is the glob's to know.
        else:
            written += re.escape(part)
    return written


def check_files(text: str) -> None:
    """Refuse a path or pattern without a file or folder; addresses are checked when they are read.

    Raises:
        CorpusError: if there is none.
    """
    path = _path_of(text)
    # Path.glob would raise for patterns that are refused in one line when they are read.
    if is_remote(text) or _is_there(path) or (has_magic(text) and any(iglob(str(path), recursive=True))):  # noqa: PTH207
        return
    forms = ", ".join(["a file", "a folder", "a glob", *_forms()[:-1]])
    raise CorpusError(
        f"Corpus source '{one_line(text)}' does not exist{tried_beside(text)}; give {forms} or {_forms()[-1]}."
    )


def _forms() -> list[str]:
    return [kind.form for _, kind in SOURCES.items() if kind.form]


def _path_of(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # Of a user without a home.
        return Path(text)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # A name too long for the system, or with a NUL.
        return False


def _find_remote(text: str, suffixes: Collection[str]) -> tuple[list[str], list[str], list[str]]:
    with _reaching(f"Cannot reach '{one_line(text)}'"):
        system, name = file_system(text)
        if _GLOB_CHARACTERS.intersection(name):
            found = sorted(system.glob(name))
        else:
            found = sorted(system.find(name)) if system.isdir(name) else [name] if system.exists(name) else []
        addresses = [system.unstrip_protocol(path) for path in found]
    files = [address for address in addresses if suffix_of(address) in suffixes]
    if not addresses:
        raise CorpusError(f"There is no file at '{one_line(text)}': check the address.")
    if not files:
        raise CorpusError(
            f"'{one_line(text)}' names no file of a supported type: {supported_types(suffixes, addresses[0])}"
        )
    return files, files, [address for address in addresses if address not in files]


def _nearby(path: Path) -> str:
    """Return the end of an error line that names the nearest path that exists, if one is near."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        return f" Sources are {', '.join(['paths', 'globs', *_forms()[:-1]])} and {_forms()[-1]}."
    near = difflib.get_close_matches(path.name, names, n=1)
    if near:
        return f" Did you mean '{one_line(path.parent / near[0])}'?"
    form = difflib.get_close_matches(str(path), _forms(), n=1)
    return f" Did you mean '{form[0]}'?" if form else ""


def _names_hub_dataset(text: str) -> bool:
    """Whether a string names a data set of the Hub: by the prefix, or as `owner/name` where there is no such path."""
    if text.startswith(_HUB):
        return True
    if _HUB_NAME.fullmatch(text) is None or _GLOB_CHARACTERS.intersection(text) or readers.names_file(text):
        return False
    try:
        return not Path(text).exists() and not Path(text).parent.is_dir()
    except OSError:  # A name too long for the system.
        return False


def _docs_folders(text: str) -> list[Path]:
    folder = text.partition(":")[2]
    return [_path_of(folder)] if folder else []


SOURCES.register("files", SourceKind("", lambda _: True, lambda text, column, _: find_files(text, column), check_files))
SOURCES.register(
    "hub",
    SourceKind(
        "hub:owner/name", _names_hub_dataset, lambda text, column, _: HubDataset(text.removeprefix(_HUB), column or "")
    ),
)


def _installed_kind(source: type[installed_docs.InstalledDocs]) -> SourceKind:
    return SourceKind(
        source.name,
        lambda text: text.partition(":")[0] == source.name,
        lambda text, _, workers: source(_docs_folders(text), workers),
        lambda text: check_files(text.partition(":")[2] or "."),
        is_labelled=False,
    )


for _source in (installed_docs.InstalledDocs, installed_docs.InstalledText):
    SOURCES.register(_source.name, _installed_kind(_source))
