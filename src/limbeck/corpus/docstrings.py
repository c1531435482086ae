"""Docstrings of one Python file, by its syntax tree: the file is parsed, never imported, never run."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from limbeck.corpus.document import clean_text
from limbeck.corpus.prose import Prose, extract_prose

LARGEST_FILE = 2_000_000
"""Bytes; larger Python files are generated tables, and cost more to parse than they hold."""

_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class FileProse(NamedTuple):
    """What one Python file gave.

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
    proses = [extract_prose(clean_text(inspect.cleandoc(docstring))) for docstring in _docstrings(tree)]
    return FileProse([prose for prose in proses if prose.paragraphs])


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Iterate over docstrings in source order; expressions are never descended into."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        body: list[ast.stmt] = getattr(node, "body", [])
        if isinstance(node, (ast.Module, *_DEFINITIONS)) and body:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.value.value
        inner = [
            *body,
            *getattr(node, "handlers", []),
            *getattr(node, "orelse", []),
            *getattr(node, "finalbody", []),
        ]
        pending.extend(statement for statement in reversed(inner) if hasattr(statement, "body"))
