"""Text that is there on any machine with Python: no download, no account.

`installed-docs` is the docstring prose of installed Python packages, `installed-text` adds the pages that come with
programs: manual pages, read-me files, news, change logs and licences. Files are parsed by worker processes and never
imported, so a package that would misbehave on import does no harm.
"""

import ast
import gzip
import hashlib
import importlib.metadata
import json
import os
import re
import site
import sys
import sysconfig
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.core.collecting import without_collecting
from limbeck.core.process_pools import map_parallel
from limbeck.corpus.cursor import Cursor
from limbeck.corpus.documents import Document, Step, clean_text
from limbeck.corpus.manual_pages import manual_text
from limbeck.corpus.prose import Prose, extract_prose
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError

LARGEST_FILE = 2_000_000
"""Bytes; larger Python files are generated tables, and cost more to parse than they hold."""

PAGE_BEGINNING = 50_000
"""Bytes of a page that are read."""

MOST_PARAGRAPHS = 40
"""Of a page: the change log of thirty years would be more text than a thousand manual pages."""

MOST_PAGES = 20
"""Of a program, or of a family of commands with a common first word: some have thousands of pages that are alike."""

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class FileProse(NamedTuple):
    """The prose of one file.

    Args:
        texts: The prose of each docstring that has any, in the order of the file; of a page one.
        problem: Why the file could not be read, or `None`.
    """

    texts: list[Prose]
    problem: str | None = None


def read_docstrings(path: str) -> FileProse:
    """Read the prose of every module, class and function docstring of a Python file."""
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        return FileProse([], f"unreadable Python file: {error.strerror or error}")
    if len(source) > LARGEST_FILE:
        return FileProse([], f"Python file over {LARGEST_FILE // 1_000_000} MB, skipped")
    # Parsing is nearly all of the cost, and a docstring of more than a line has triple quotes.
    if b'"""' not in source and b"'''" not in source:
        return FileProse([])
    try:
        with warnings.catch_warnings():
            # Invalid escapes in somebody else's file are not this program's to report.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return FileProse([], "Python file that does not parse")
    proses = [extract_prose(clean_text(docstring)) for docstring in _docstrings(tree)]
    return FileProse([prose for prose in proses if prose.paragraphs])


def read_page(path: str) -> FileProse:
    """Read the prose of a page: of a manual page with its description as the title, of a package its description."""
    try:
        with gzip.open(path) if path.endswith(".gz") else Path(path).open("rb") as file:
            content = file.read(PAGE_BEGINNING)
    except (OSError, EOFError, zlib.error) as error:
        return FileProse([], f"unreadable page: {getattr(error, 'strerror', None) or 'damaged'}")
    text = clean_text(content.decode("utf-8", "replace"))
    if _is_manual_page(path):
        prose = extract_prose(manual_text(text))
    elif path.endswith("METADATA"):
        prose = extract_prose(text.partition("\n\n")[2])
    else:
        prose = extract_prose(_BLANK_LINE.sub("", text))
    kept = [paragraph for paragraph in prose.paragraphs if "\ufffd" not in paragraph][:MOST_PARAGRAPHS]
    return FileProse([Prose(kept, prose.has_summary and _is_manual_page(path))] if kept else [])


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Iterate over docstrings in source order; expressions are never descended into."""
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node)) is not None:
            yield docstring
        parts = ("body", "handlers", "orelse", "finalbody")
        inner = [statement for part in parts for statement in getattr(node, part, [])]
        pending.extend(statement for statement in reversed(inner) if hasattr(statement, "body"))


# Packages below a standard library are another environment's, unless they are a root themselves. Tests take a
# fifth of the time and hold a twentieth of the prose.
_PASSED_OVER = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests"})
_CHUNK = 32

# English ones alone: translations have a folder of their own, or a language in their name (README.de). Debian's change
# logs tell of packaging, not of programs.
_MANUALS = re.compile(r"man[1-9]\w*")
_MANUAL_PAGE = re.compile(r".+\.[1-9]\w*(?:\.gz)?")
_FIRST_WORD = re.compile(r"[A-Za-z]*")
_PAGE = re.compile(
    r"(?!changelog\.debian)(?:read-?me|news|faq|todo|hacking|contributing|history|changes|change-?log|copyright|licen[cs]e|copying|notice|"
    r"install)(?:[-.]\w+)?(?:\.(?:txt|md|rst))?(?:\.gz)?|[\w+-]+\.(?:md|rst)(?:\.gz)?|metadata",
    re.IGNORECASE,
)
_TRANSLATED = re.compile(r"[-._](?!md|gz)[a-z]{2}(?:[-_][a-z]{2})?(?:\.(?:txt|md|rst|gz))*\Z", re.IGNORECASE)
# Debian's files of copyrights have a full stop alone on lines between paragraphs.
_BLANK_LINE = re.compile(r"^ *\.$", re.MULTILINE)


_NAME, _VERSION = (re.compile(rf"^{key}: *(\S+) *$", re.MULTILINE) for key in ("Name", "Version"))


def _release(distribution: importlib.metadata.Distribution) -> str:
    """Return the name and the version of a distribution; the standard parser of all that it says takes longer."""
    header = (distribution.read_text("METADATA") or "").partition("\n\n")[0]
    name, version = _NAME.findall(header), _VERSION.findall(header)
    if len(name) == len(version) == 1:
        return f"{name[0]}=={version[0]}"
    return f"{distribution.name}=={distribution.version}"


class InstalledDocs:
    """Docstring prose of installed packages and the standard library.

    A paragraph that appears again, in any package, is left out (vendored copies, inherited docstrings).

    Args:
        roots: Folders to read instead of those that Python imports from.
        workers: Processes; the default is one per CPU core.

    Raises:
        CorpusError: if a root is not a folder.
    """

    name = "installed-docs"

    def __init__(self, roots: Sequence[Path] = (), workers: int | None = None) -> None:
        self.roots = [root.resolve() for root in roots] if roots else installed_roots()
        self._named = bool(roots)
        self._workers = workers
        for root in self.roots:
            if not root.is_dir():
                raise CorpusError(f"{self.name}: '{root}' is not a folder of Python packages.")

    def paths(self) -> list[str]:
        """Return the files that are read, in their order."""
        return list(python_files(self.roots))

    def fingerprint(self) -> Any:
        """Return what decides the text: the interpreter, the installed distributions and their versions."""
        roots = [str(root) for root in self.roots]
        if self._named:
            files = [Path(path).stat() for path in self.paths()]
            return [self.name, roots, [[file.st_size, file.st_mtime_ns] for file in files]]
        return [self.name, roots, sys.version, sorted({*map(_release, importlib.metadata.distributions())})]

    def documents(
        self, report: SourceReport, progress: Step | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over one document per docstring or page, in the order of the file names.

        Args:
            report: Receives the files that could not be read and the number of repeated paragraphs.
            progress: Called with the number of files read, the number of all files and their unit.
            cursor: Where to begin. Repeats are only known from the beginning, so all is read again.
        """
        cursor = cursor or Cursor()
        if cursor.shard:
            return
        before: int = cursor.position
        report.muted = before > 0
        for number, document in enumerate(self._read(report, progress), start=1):
            if number > before:
                cursor.position = number
                yield document
            report.muted = number < before
        cursor.move(cursor.shard + 1)

    def _read(self, report: SourceReport, progress: Step | None) -> Iterator[Document]:
        paths = self.paths()
        chunks = [paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK)]
        seen: set[str] = set()
        read = 0
        if progress is not None:
            progress(0, len(paths), "files")
        for chunk, results in zip(chunks, map_parallel(_read_chunk, chunks, self._workers), strict=True):
            for path, result in zip(chunk, results, strict=True):
                if result.problem is not None:
                    report.note(result.problem, path)
                yield from _new_documents(result, path, seen, report)
            read += len(chunk)
            if progress is not None:
                progress(read, len(paths), "files")


class InstalledText(InstalledDocs):
    """Docstring prose, and the prose of the pages that come with packages and programs.

    Of a folder's `man1` to `man9` the manual pages, elsewhere read-me files, news, change logs, licences, descriptions
    of packages, and Markdown and reStructuredText; of each its beginning, and of many alike a few.

    Args:
        roots: Folders to read instead of those that Python imports from and those where programs leave pages.
        workers: Processes; the default is one per CPU core.

    Raises:
        CorpusError: if a root is not a folder.
    """

    name = "installed-text"

    def paths(self) -> list[str]:
        """Return the Python files, then the pages."""
        return [*python_files(self.roots), *self._pages()]

    def fingerprint(self) -> Any:
        """Return what decides the text: as of docstrings, and the names and sizes of the pages."""
        pages = [] if self._named else [[path, Path(path).stat().st_size] for path in self._pages()]
        return [super().fingerprint(), hashlib.sha256(json.dumps(pages).encode()).hexdigest()]

    def _pages(self) -> list[str]:
        return list(page_files(self.roots if self._named else [*self.roots, *page_roots()]))


def page_roots() -> list[Path]:
    """Return the folders where programs of this machine leave manual pages, documentation and licences."""
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix, "/usr", "/usr/local", "/opt/homebrew"))
    folders = [Path(prefix, "share", name) for prefix in prefixes for name in ("man", "doc", "common-licenses")]
    return list(dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir()))


def page_files(roots: Iterable[Path]) -> Iterator[str]:
    """Iterate over the English pages below each root, sorted, at most `MOST_PAGES` of a program or family of commands.

    Each page once; links to folders are not followed.
    """
    taken: Counter[str] = Counter()
    walked: set[str] = set()
    for root in roots:
        for folder, names, files in os.walk(root):
            names[:] = sorted(name for name in names if name[0] != "." and not _is_translation(folder, name))
            if folder in walked:
                continue
            walked.add(folder)
            manuals = _MANUALS.fullmatch(Path(folder).name) is not None
            program = folder[len(str(root)) + 1 :].partition(os.sep)[0]
            named = [name for name in files if (_MANUAL_PAGE if manuals else _PAGE).fullmatch(name)]
            for path in _readable(folder, [name for name in named if not _TRANSLATED.search(name)]):
                family = f"{folder}/{_first_word(Path(path).name)}" if manuals else f"{root}/{program}"
                taken[family] += 1
                if taken[family] <= MOST_PAGES:
                    yield path


def _is_translation(folder: str, name: str) -> bool:
    return Path(folder).name == "man" and not _MANUALS.fullmatch(name)


def _first_word(name: str) -> str:
    word = _FIRST_WORD.match(name)
    return word.group() if word else ""


def _is_manual_page(path: str) -> bool:
    return _MANUALS.fullmatch(Path(path).parent.name) is not None


def installed_roots() -> list[Path]:
    """Return the folders of the standard library and of installed packages of this interpreter."""
    named = sysconfig.get_paths()
    candidates = [named["stdlib"], named["purelib"], named["platlib"], *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        candidates.append(site.getusersitepackages())
    resolved = (Path(candidate).resolve() for candidate in candidates)
    return list(dict.fromkeys(root for root in resolved if root.is_dir()))


def python_files(roots: Iterable[Path]) -> Iterator[str]:
    """Iterate over the `.py` files below each root, sorted; each file once, links to folders not followed.

    Folders of tests are left out.
    """
    walked: set[str] = set()
    for root in roots:
        for folder, names, files in os.walk(root):
            names[:] = sorted(name for name in names if name not in _PASSED_OVER and name[0] != ".")
            if folder in walked:
                continue
            walked.add(folder)
            yield from _readable(folder, [name for name in files if name.endswith(".py")])


def _readable(folder: str, names: Iterable[str]) -> Iterator[str]:
    """Iterate over the files of a folder, sorted, without links that lead nowhere and pipes that nobody writes to."""
    paths = (os.path.join(folder, name) for name in sorted(names))  # noqa: PTH118
    return (path for path in paths if os.path.isfile(path))  # noqa: PTH113


def _new_documents(result: FileProse, path: str, seen: set[str], report: SourceReport) -> Iterator[Document]:
    for prose in result.texts:
        paragraphs = []
        for paragraph in prose.paragraphs:
            if paragraph in seen:
                report.note("paragraph that repeats another", path)
            else:
                seen.add(paragraph)
                paragraphs.append(paragraph)
        if paragraphs:
            has_title = prose.has_summary and len(paragraphs) > 1 and paragraphs[0] == prose.paragraphs[0]
            yield Document("\n".join(paragraphs), paragraphs[0] if has_title else None)


def _read_chunk(paths: list[str]) -> list[FileProse]:
    with without_collecting():  # Syntax trees have no reference cycles, and collecting costs a fifth of the time.
        return [(read_docstrings if path.endswith(".py") else read_page)(path) for path in paths]
