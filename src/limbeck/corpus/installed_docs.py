"""The `installed-docs` source: docstring prose of the Python packages that this machine has installed.

Text that is there on any machine with Python: no download, no account. Files are parsed by worker processes
and never imported, so a package that would misbehave on import does no harm.
"""

import ast
import gc
import importlib.metadata
import os
import site
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.core.workers import map_parallel
from limbeck.corpus.documents import Cursor, Document, SourceReport, Step, clean_text
from limbeck.corpus.prose import Prose, extract_prose
from limbeck.errors import CorpusError

LARGEST_FILE = 2_000_000
"""Bytes; larger Python files are generated tables, and cost more to parse than they hold."""

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class FileProse(NamedTuple):
    """The docstring prose of one Python file.

    Args:
        docstrings: The prose of each docstring that has any, in the order of the file.
        problem: Why the file could not be read, or `None`.
    """

    docstrings: list[Prose]
    problem: str | None = None


def read_docstrings(path: str) -> FileProse:
    """Read the prose of every module, class and function docstring of a Python file."""
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        return FileProse([], f"unreadable Python file: {error.strerror or error}")
    if len(source) > LARGEST_FILE:
        return FileProse([], f"Python file over {LARGEST_FILE // 1_000_000} MB, passed over")
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


class InstalledDocs:
    """Docstring prose of installed packages and the standard library.

    A paragraph that appears again, in any package, is left out (vendored copies, inherited docstrings).

    Args:
        roots: Folders to read instead of those that Python imports from.
        workers: Processes; the default is one per CPU core.

    Raises:
        CorpusError: if a root is not a folder.
    """

    def __init__(self, roots: Sequence[Path] = (), workers: int | None = None) -> None:
        self.roots = [root.resolve() for root in roots] if roots else installed_roots()
        self._named = bool(roots)
        self._workers = workers
        for root in self.roots:
            if not root.is_dir():
                raise CorpusError(f"installed-docs: '{root}' is not a folder of Python packages.")

    def fingerprint(self) -> Any:
        """Return what decides the text: the interpreter, the installed distributions and their versions."""
        roots = [str(root) for root in self.roots]
        if self._named:
            files = [Path(path).stat() for path in python_files(self.roots)]
            return ["installed-docs", roots, [[file.st_size, file.st_mtime_ns] for file in files]]
        distributions = {f"{entry.name}=={entry.version}" for entry in importlib.metadata.distributions()}
        return ["installed-docs", roots, sys.version, sorted(distributions)]

    def documents(
        self, report: SourceReport, progress: Step | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over one document per docstring, in the order of the file names.

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
        paths = list(python_files(self.roots))
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
            yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))  # noqa: PTH118


def _new_documents(result: FileProse, path: str, seen: set[str], report: SourceReport) -> Iterator[Document]:
    for prose in result.docstrings:
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
    # Syntax trees have no cycles: reference counting frees them, and collecting costs a fifth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return [read_docstrings(path) for path in paths]
    finally:
        if collecting:
            gc.enable()
