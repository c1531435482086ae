"""The labels of a task file that names none, found in its training file for the message that refuses it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from limbeck.corpus.files.file_kinds import TableLayout, suffix_of
from limbeck.corpus.files.file_readers import FILE_KINDS, read_rows
from limbeck.corpus.rows.tags import OUTSIDE
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import LimbeckError

_MOST_ROWS = 100_000
"""Rows that are read."""
_MOST_LABELS = 100
"""Labels that a line shows; with more of them the column holds no classes."""
_KEYS_OF_LABELS = {"classification": "label", "pair": "label", "token_classification": "tags"}
"""The column of the label by the type of task, for types whose rows have one class, or one for each word."""


def labels_line(path: Path, content: Mapping[str, Any]) -> str:
    """Return the line to add to a task file, such as `labels: [bad, good]`; empty where the labels cannot be found.

    Args:
        path: The task file, beside which its training file lies.
        content: The mapping in it, which may have mistakes.
    """
    key = _KEYS_OF_LABELS.get(str(content.get("type")))
    columns = content.get("columns") or {}
    training_file = _training_file(path, content)
    if key is None or training_file is None or not isinstance(columns, Mapping):
        return ""

    file, layout = training_file
    column = columns.get(key, key)
    labels: set[str] = set()
    try:
        rows = read_rows(file, SourceReport(), of_words=key == "tags", layout=layout)
        for row in islice(rows, _MOST_ROWS):
            value = row.values.get(column)
            values = value if isinstance(value, list) else [value]
            labels.update(value for value in values if isinstance(value, str) and value.strip())
            if len(labels) > _MOST_LABELS:
                return ""
    except LimbeckError:
        return ""  # What is wrong with the file is told once the task has its labels.
    if len(labels) < 2:
        return ""
    # The tag of a word in no entity stands first, as in most task files.
    ordered = sorted(labels, key=lambda label: (label != OUTSIDE, label))
    # JSON is YAML too, and its quotation marks keep "no" a text.
    return f"labels: {json.dumps(ordered, ensure_ascii=False)}"


def _training_file(path: Path, content: Mapping[str, Any]) -> tuple[Path, TableLayout] | None:
    """Return the training file that lies beside a task file, and its layout; None where there is none."""
    files = content.get("files")
    source = files.get(content.get("train", "train")) if isinstance(files, Mapping) else None
    header: Any = ()
    if isinstance(source, Mapping):
        header = source.get("header") or ()
        source = source.get("path")
    if not isinstance(source, str) or not isinstance(header, list | tuple):
        return None
    file = path.parent / source
    suffix = suffix_of(file)
    is_table = suffix in FILE_KINDS and FILE_KINDS[suffix].rows is not None
    if not is_table or not file.is_file():
        return None
    return file, TableLayout(tuple(map(str, header)))
