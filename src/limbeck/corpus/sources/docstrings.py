"""The prose of the docstrings of Python files, which are parsed and never imported."""

import ast
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.corpus.sources.installed_files import walk_files
from limbeck.corpus.text.documents import clean_text
from limbeck.corpus.text.prose import Prose, extract_prose

LARGEST_FILE = 2_000_000
"""Bytes. Larger Python files are mostly generated tables, which take long to parse and have little prose."""

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BODIES = ("body", "handlers", "orelse", "finalbody")

# Folders that are not entered. A `site-packages` folder inside of a root belongs to another environment. Tests would
# take a fifth of the time and have a twentieth of the prose.
_PASSED_OVER = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests"})


class FileProse(NamedTuple):
    """The prose of one file.

    Args:
        texts: The prose of each docstring that has any, in the order of the file. A page is one text.
        problem: Reason why the file could not be read, or `None`.
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

    # Parsing takes nearly all of the time, so a file without triple quotes, as docstrings have, is not parsed.
    if b'"""' not in source and b"'''" not in source:
        return FileProse([])
    try:
        with warnings.catch_warnings():
            # Parsing warns of invalid escapes, which do not matter here.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return FileProse([], "Python file that does not parse")

    texts: list[Prose] = []
    for docstring in _docstrings(tree):
        prose = extract_prose(clean_text(docstring))
        if prose.paragraphs:
            texts.append(prose)
    return FileProse(texts)


def python_files(roots: Iterable[Path]) -> Iterator[str]:
    """Iterate over the `.py` files below each root, sorted; each file once, links to folders not followed.

    Folders of tests are left out.
    """
    for _, path in walk_files(roots, _PASSED_OVER, lambda name: name.endswith(".py")):
        yield path


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Iterate over docstrings in source order.

    Only statements with a body can contain further docstrings, so expressions are not searched.
    """
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, _DOCUMENTED):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield docstring
        inner: list[Any] = []
        for name in _BODIES:
            statements = getattr(node, name, [])
            inner += [statement for statement in statements if hasattr(statement, "body")]
        # The last of the pending nodes is taken next, so the first inner one has to come last.
        pending += reversed(inner)
