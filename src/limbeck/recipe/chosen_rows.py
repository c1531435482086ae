"""The labelled rows of a chosen recipe: the columns of a task, found by their names in the first file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limbeck.core.kinds import KINDS
from limbeck.corpus.files.file_kinds import suffix_of
from limbeck.corpus.files.file_readers import read_rows
from limbeck.corpus.messages import list_columns
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import check_source, local_files
from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.tasks.registry import TASKS, is_own_task
from limbeck.models.heads import kind_of_value
from limbeck.recipe.model_plans import TeacherInfo

# Columns of rows as data sets call them; the first line is taken that a file has the columns of.
_TEXTS = (("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"), ("text",), ("sentence",))
_LABELS = (("label",), ("labels",), ("score",))
_DOCUMENTS = (("documents",), ("positive", "negatives"), ("positive", "negative"), ("document",))


def choose_rows(teacher: TeacherInfo, sources: list[str], head: str) -> dict[str, Any]:
    """Choose the corpus of a teacher of a task.

    Args:
        teacher: The teacher.
        sources: Sources of rows, or the name of a task.
        head: The teacher's head.

    Raises:
        LimbeckError: for rows that are missing, or do not have the columns of the task.
    """
    if len(sources) == 1 and (sources[0] in TASKS or is_own_task(sources[0])):
        return {"task": sources[0]}
    place, columns = _first_columns(sources, of_words=KINDS[head].of_words)
    # Most rerankers do not say that they are; their rows do.
    kind = kind_of_value(teacher.config) if KINDS[head].has_value else head
    may_rank = kind in (None, "ranking")
    if columns is None:
        return {"sources": sources, "task": {"kind": kind or "ranking"}}

    documents = _first_of(_DOCUMENTS, columns) if "query" in columns else []
    if may_rank and documents:
        return {"sources": sources, "task": {"kind": "ranking", "document_columns": documents}}
    if "text" not in KINDS[head].columns:
        if set(KINDS[head].columns) <= columns:
            return {"sources": sources, "task": {"kind": head}}
    elif kind != "ranking":
        label = _first_of(_LABELS, columns)
        texts = _first_of(_TEXTS, columns)
        if label and texts:
            task = {"kind": head, "label_column": label[0]}
            if len(texts) > 1:
                task["pair_column"] = texts[1]
            return {"sources": sources, "text_column": texts[0], "task": task}

    wanted = kind or "ranking"
    raise RecipeError(
        f"The teacher '{teacher.title}' does {wanted.replace('_', ' ')}, which is taught on rows of "
        f"{KINDS[wanted].rows}, and {place} has {list_columns(columns)}; give such rows or "
        "the name of a task, or write a recipe that names the columns (`limbeck recipe --example task`)."
    )


def _first_of(choices: Sequence[Sequence[str]], columns: set[str]) -> list[str]:
    """Return the first choice whose columns are all there; empty without one."""
    for names in choices:
        if set(names) <= columns:
            return list(names)
    return []


def _first_columns(sources: list[str], *, of_words: bool) -> tuple[str, set[str] | None]:
    """Return where the first row is, and its columns; None where reading would take a network or a whole file."""
    for source in sources:
        check_source(source)
    try:
        files = local_files(sources)
    except CorpusError:
        return f"'{sources[0]}'", set()  # It has files, and none of labelled rows.
    for file in files:
        if suffix_of(file) == ".json":
            continue
        for row in read_rows(file, SourceReport(), of_words=of_words):
            return f"'{file}'", set(map(str, row.values))
        return f"'{file}'", set()
    return "", None
