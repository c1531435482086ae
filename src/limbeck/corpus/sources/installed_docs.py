"""`InstalledDocs` and `InstalledText`: text that every machine with Python has, without a download.

`installed-docs` is the docstring prose of installed Python packages, `installed-text` adds the pages that come with
packages and programs. Files are parsed by worker processes and never imported, so a package that would misbehave on
import does no harm.
"""

import hashlib
import importlib.metadata
import json
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from limbeck.core.collecting import without_collecting
from limbeck.core.process_pools import map_parallel
from limbeck.corpus.progress import StepProgress
from limbeck.corpus.source_report import SourceReport, items_behind
from limbeck.corpus.sources.docstrings import FileProse, python_files, read_docstrings
from limbeck.corpus.sources.installed_pages import page_files, page_roots, read_page
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import Document
from limbeck.errors import CorpusError

# Number of files that a worker process reads at a time.
_CHUNK = 32
_NAME = re.compile(r"^Name: *(\S+) *$", re.MULTILINE)
_VERSION = re.compile(r"^Version: *(\S+) *$", re.MULTILINE)


class InstalledDocs:
    """Docstring prose of installed packages and the standard library.

    A paragraph that has appeared before, in any package, is left out: packages have copies of each other, and classes
    inherit docstrings.

    Args:
        roots: Folders to read instead of those that Python imports from.
        workers: Processes; the default is one per CPU core.

    Raises:
        CorpusError: if a root is not a folder.
    """

    name = "installed-docs"

    def __init__(self, roots: Sequence[Path] = (), workers: int | None = None) -> None:
        self._has_own_roots = bool(roots)
        self._workers = workers
        self.roots = [root.resolve() for root in roots] if roots else installed_roots()
        for root in self.roots:
            if not root.is_dir():
                raise CorpusError(
                    f"{self.name}: '{root}' is not a folder; give a folder of Python packages, such as site-packages."
                )

    def paths(self) -> list[str]:
        """Return the files that are read, in their order."""
        return list(python_files(self.roots))

    def fingerprint(self) -> Any:
        """Return the values that decide the text: the interpreter, the installed distributions and their versions."""
        roots = [str(root) for root in self.roots]
        if self._has_own_roots:
            files = [Path(path).stat() for path in self.paths()]
            return [self.name, roots, [[file.st_size, file.st_mtime_ns] for file in files]]
        releases = {_release(distribution) for distribution in importlib.metadata.distributions()}
        return [self.name, roots, sys.version, sorted(releases)]

    def read_files(self) -> Sequence[Path]:
        """Return the files of folders that were named; installed packages are known by their versions."""
        return [Path(path) for path in self.paths()] if self._has_own_roots else ()

    def documents(
        self, report: SourceReport, progress: StepProgress | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over one document per docstring or page, in the order of the file names.

        Args:
            report: Receives the files that could not be read and the number of repeated paragraphs.
            progress: Called with the number of files read, the number of all files and their unit.
            cursor: Position at which reading begins. Repeats can only be found from the beginning, so all documents are
                read again, and those in front of the position are passed over.
        """
        if cursor is None:
            cursor = Cursor()
        # The source is a single shard, which was read to its end.
        if cursor.shard:
            return
        documents_before: int = cursor.position
        new_documents = items_behind(documents_before, self._read(report, progress), report)
        for number, document in enumerate(new_documents, start=documents_before + 1):
            cursor.position = number
            yield document
        cursor.move(cursor.shard + 1)

    def _read(self, report: SourceReport, progress: StepProgress | None) -> Iterator[Document]:
        """Yield the documents of all files, read in parallel, in the order of the files; each text once."""
        paths = self.paths()
        chunks = [paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK)]
        if progress is not None:
            progress(0, len(paths), "files")
        seen_paragraphs: set[str] = set()
        files_read = 0
        for chunk, results in zip(chunks, map_parallel(_read_chunk, chunks, self._workers), strict=True):
            for path, result in zip(chunk, results, strict=True):
                if result.problem is not None:
                    report.note(result.problem, path)
                yield from _new_documents(result, path, seen_paragraphs, report)
            files_read += len(chunk)
            if progress is not None:
                progress(files_read, len(paths), "files")


class InstalledText(InstalledDocs):
    """Docstring prose, and the prose of the pages that come with packages and programs.

    Pages are read-me files, news, change logs, licences, descriptions of packages, and files of Markdown and
    reStructuredText. The beginning of each page is read, and a limited number of pages of each program.

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
        """Return the values that decide the text: those of docstrings, and the names and sizes of the pages."""
        pages: list[list[Any]] = []
        if not self._has_own_roots:
            pages = [[path, Path(path).stat().st_size] for path in self._pages()]
        return [super().fingerprint(), hashlib.sha256(json.dumps(pages).encode()).hexdigest()]

    def _pages(self) -> list[str]:
        roots = self.roots
        if not self._has_own_roots:
            roots = [*roots, *page_roots()]
        return list(page_files(roots))


def installed_roots() -> list[Path]:
    """Return the folders of the standard library and of installed packages of this interpreter."""
    paths = sysconfig.get_paths()
    candidates = [paths["stdlib"], paths["purelib"], paths["platlib"], *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        candidates.append(site.getusersitepackages())
    resolved = [Path(candidate).resolve() for candidate in candidates]
    return list(dict.fromkeys(root for root in resolved if root.is_dir()))


def _release(distribution: importlib.metadata.Distribution) -> str:
    """Return name and version of a distribution, such as `numpy==2.1.0`.

    They are read from the text of its METADATA, since the standard parser takes much longer.
    """
    header, _, _ = (distribution.read_text("METADATA") or "").partition("\n\n")
    names = _NAME.findall(header)
    versions = _VERSION.findall(header)
    if len(names) == len(versions) == 1:
        return f"{names[0]}=={versions[0]}"
    return f"{distribution.name}=={distribution.version}"


def _read_chunk(paths: list[str]) -> list[FileProse]:
    # Syntax trees have no reference cycles, and collecting costs a fifth of the time.
    with without_collecting():
        return [read_docstrings(path) if path.endswith(".py") else read_page(path) for path in paths]


def _new_documents(result: FileProse, path: str, seen_paragraphs: set[str], report: SourceReport) -> Iterator[Document]:
    """Iterate over the documents of a file, without paragraphs that were seen before; new ones are added to these."""
    for prose in result.texts:
        paragraphs: list[str] = []
        for paragraph in prose.paragraphs:
            if paragraph in seen_paragraphs:
                report.note("paragraph that repeats another", path)
            else:
                seen_paragraphs.add(paragraph)
                paragraphs.append(paragraph)
        if not paragraphs:
            continue
        # The first paragraph is a title if it is the summary of the docstring and was not left out.
        title = None
        begins_with_summary = prose.has_summary and paragraphs[0] == prose.paragraphs[0]
        if begins_with_summary and len(paragraphs) > 1:
            title = paragraphs[0]
        yield Document("\n".join(paragraphs), title)
