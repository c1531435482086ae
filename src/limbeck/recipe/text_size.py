"""The size of text before it is read: the bytes of its files, and of labelled rows the tokens of the first ones.

The budget of a chosen recipe depends on it (`limbeck.recipe.budget`). All sizes are estimates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from limbeck.core.kinds import KINDS as FACTS
from limbeck.corpus.files.addresses import is_remote
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.settings import LabelledSettings, StageTextSpec
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.file_sources import find_files
from limbeck.corpus.sources.named_sources import SOURCES, holds_texts_alone, open_rows, source_kind
from limbeck.corpus.sources.source_kinds import files_of
from limbeck.errors import LimbeckError
from limbeck.evaluation.tasks.corpus_rows import TaskRows
from limbeck.evaluation.tasks.split_files import is_read_whole
from limbeck.kinds.registry import KINDS
from limbeck.recipe.corpora import corpus_settings
from limbeck.recipe.corpus import Corpus
from limbeck.recipe.labelled_rows import Classifier

BYTES_OF_TOKEN = 4.5
"""Rough mean of the bytes of text in a token."""
_MOST_ROWS = 200
"""Rows by which the tokens of all rows are estimated."""


class RowSizes(NamedTuple):
    """Sizes of labelled rows.

    Attributes:
        size: Bytes of their files, unpacked; None where they are not known before the rows are read.
        tokens_of_row: Mean number of tokens in a row, as it is cut; of a ranking in a query with the documents that are
            read together.
    """

    size: int | None
    tokens_of_row: float


def size_of_text(sources: Sequence[str], *, of_rows: bool = False) -> int | None:
    """Bytes of the text of all sources together; None where the size of one is not known before it is read.

    Args:
        sources: The sources.
        of_rows: Whether they have labelled rows.
    """
    total = 0
    for source in sources:
        if not _is_local(source):
            return None
        # Rows are read whole, so all of their columns count. Of other text only the column `text` does.
        if of_rows and not holds_texts_alone(source):
            size = find_files(source).size()
        else:
            size = find_files(source, "text").size()
        if size is None:
            return None
        total += size
    return total


def sizes_of_rows(corpus: Mapping[str, Any], named: Mapping[str, Any], kind: str, teacher: Classifier) -> RowSizes:
    """Estimate the sizes of the rows of a chosen corpus.

    Mistakes in the corpus are left to the check of the recipe; the sizes are then those of unknown rows.

    Args:
        corpus: The chosen corpus, with its task.
        named: Keys of the corpus that the user gives, which take precedence.
        kind: The kind of the task.
        teacher: The teacher, whose classes number the rows.
    """
    size = None
    tokens_of_row = float(FACTS[kind].usual_tokens)
    with suppress(LimbeckError, ValidationError):
        settings = _settings_of(corpus, named, teacher)
        size = size_of_text(settings.sources, of_rows=True)
        rows = _first_rows(settings)
        if rows:
            tokens_of_row = _tokens_of_row(rows, settings)
    return RowSizes(size, tokens_of_row)


def _settings_of(corpus: Mapping[str, Any], named: Mapping[str, Any], teacher: Classifier) -> LabelledSettings:
    """The settings of the rows of a chosen corpus, with the user's keys, as a run has them.

    Raises:
        LimbeckError: for files that are missing, and rows that do not fit the teacher.
        ValidationError: for keys that cannot be meant.
    """
    keys = {**corpus, **named}
    if isinstance(corpus["task"], Mapping):
        keys["task"] = {**corpus["task"], **(named.get("task") or {})}
    spec = TypeAdapter(Corpus).validate_python(keys)
    settings = corpus_settings(spec, StageTextSpec(), teacher)
    assert isinstance(settings, LabelledSettings)  # The corpus has a task.
    return settings


def _first_rows(settings: LabelledSettings) -> list[LabelledRow]:
    """The first rows of a corpus; none where they are not known without reading much.

    Raises:
        CorpusError: for a row that lacks a column or its label.
    """
    if isinstance(settings.rows, TaskRows):
        return settings.rows.first_rows(_MOST_ROWS)
    return list(islice(_rows_of_files(settings), _MOST_ROWS))


def _rows_of_files(settings: LabelledSettings) -> Iterator[LabelledRow]:
    """Iterate over the rows of the local files of a corpus, apart from files that have to be read whole."""
    kind = KINDS[settings.task]
    read = kind.reader(settings)
    report = SourceReport()
    for source in settings.sources:
        if not _is_local(source):
            continue
        files = open_rows(source, settings.layout, settings.text_of_line)
        if any(is_read_whole(Path(file)) for file in files_of(files)):
            continue
        for row in files.rows(report, of_words=kind.rows_of_words):
            yield from read(row, report)


def _tokens_of_row(rows: Sequence[LabelledRow], settings: LabelledSettings) -> float:
    """The mean tokens of some rows; of a ranking the mean of the groups of a query's documents that are read together.

    Args:
        rows: The rows, at least one.
        settings: Their settings, with the length that they are cut to.
    """
    tokens = 0.0
    for row in rows:
        size = len(row.text.encode(errors="replace")) + len((row.pair or "").encode(errors="replace"))
        tokens += min(size / BYTES_OF_TOKEN, settings.length)
    if not FACTS[settings.task].has_queries:
        return tokens / len(rows)

    # A query with many documents becomes several groups.
    groups = 0
    for documents in Counter(row.text for row in rows).values():
        groups += math.ceil(documents / settings.documents_per_query)
    return tokens / groups


def _is_local(source: str) -> bool:
    """Whether a source names files of this machine."""
    return source_kind(source) is SOURCES["files"] and not is_remote(source)
