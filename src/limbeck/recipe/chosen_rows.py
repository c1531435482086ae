"""The labelled rows of a chosen recipe: the columns of a task, found by their names in the first file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limbeck.core.kinds import KINDS
from limbeck.corpus.file_kinds import suffix_of
from limbeck.corpus.messages import list_columns
from limbeck.corpus.readers import read_rows
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources import check_source, local_files
from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.tasks import TASKS, is_own_task
from limbeck.models.heads import kind_of_value
from limbeck.recipe.model_plans import TeacherInfo

# Columns of rows as data sets call them; the first line is taken that a file has the columns of.
_TEXTS = (("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"), ("text",), ("sentence",))
_LABELS = (("label",), ("labels",), ("score",))
_DOCUMENTS = (("documents",), ("positive", "negatives"), ("positive", "negative"), ("document",))
_ANSWERS = ("question", "context", "answers")
_WORDS = ("tokens", "tags")
_NEEDED = {
    "question answering": "a question, a context and answers",
    "token classification": "words and their tags",
    "ranking": "a query and its documents",
}
_NEEDED_OF_TEXTS = "a text and its label"


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
    if columns is None:
        return {"sources": sources, "task": {"kind": kind or "ranking"}}

    documents = _first_of(_DOCUMENTS, columns) if "query" in columns else []
    if kind in (None, "ranking"):
        if documents:
            return {"sources": sources, "task": {"kind": "ranking", "document_columns": documents}}
    elif KINDS[head].of_tokens and _first_of((_ANSWERS, _WORDS), columns):
        return {"sources": sources, "task": {"kind": head}}

    label = _first_of(_LABELS, columns)
    texts = _first_of(_TEXTS, columns)
    if kind != "ranking" and not KINDS[head].of_tokens and label and texts:
        task = {"kind": head, "label_column": label[0]}
        if len(texts) > 1:
            task["pair_column"] = texts[1]
        return {"sources": sources, "text_column": texts[0], "task": task}

    kind_in_words = (kind or "ranking").replace("_", " ")
    raise RecipeError(
        f"The teacher '{teacher.title}' does {kind_in_words}, which is taught on rows of "
        f"{_NEEDED.get(kind_in_words, _NEEDED_OF_TEXTS)}, and {place} has {list_columns(columns)}; give such rows or "
        "the name of a task, or write a recipe that names the columns (`limbeck recipe --example task`)."
    )


def _first_of(choices: Sequence[Sequence[str]], columns: set[str]) -> list[str]:
    """The first choice whose columns are all there; empty without."""
    for names in choices:
        if set(names) <= columns:
            return list(names)
    return []


def _first_columns(sources: list[str], *, of_words: bool) -> tuple[str, set[str] | None]:
    """Where the first row is, and its columns; None where reading would take a network or a whole file."""
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
