"""The rows of a chosen recipe: the columns of a task, found by their names in the first file, with labels or without.

A *kind* is a kind of task, such as `classification` or `ranking`, and so of rows (`limbeck.core.kinds.KINDS`). The head
of a fine-tuned teacher decides which kinds of rows it can be distilled on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from limbeck.core.kinds import KINDS
from limbeck.corpus.files.addresses import FilePath
from limbeck.corpus.files.file_kinds import suffix_of
from limbeck.corpus.files.file_readers import read_rows
from limbeck.corpus.messages import list_columns
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.file_sources import find_files
from limbeck.corpus.sources.named_sources import check_source, holds_texts_alone, local_files, source_kind
from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.tasks.registry import TASKS, is_own_task
from limbeck.models.heads import kind_of_value
from limbeck.recipe.mistakes import text_without_columns
from limbeck.recipe.model_plans import TeacherInfo

# Usual names of columns in data sets. Of each, the first group is taken whose columns are all in the file.
_TEXTS = (("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"), ("text",), ("sentence",))
_LABELS = (("label",), ("labels",), ("score",))
_USUAL_DOCUMENT_COLUMNS = (("documents",), ("positive", "negatives"), ("positive", "negative"), ("document",))
_TAG_PATTERN = re.compile(r"O|[BIESLU][-_].+")
"""A tag of the usual schemes of entities."""


def choose_rows(
    teacher: TeacherInfo, sources: list[str], head: str, named: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Choose the corpus for a teacher that was fine-tuned for a task.

    The kind of the rows is that of the teacher's head. Where the head may be of two kinds, and for rows that may have
    no labels, the columns of the first row decide.

    Args:
        teacher: The teacher.
        sources: Sources of rows, or the name of one task.
        head: The teacher's head, by the name of its kind of task.
        named: Keys of the corpus that the user gives, such as `text_column` and `task.label_column`.

    Returns:
        The keys of a recipe's `corpus`.

    Raises:
        LimbeckError: for rows that are missing, or do not have the columns of the task.
    """
    # A task may be named, in place of the sources or beside them.
    is_name_of_task = len(sources) == 1 and (sources[0] in TASKS or is_own_task(sources[0]))
    if is_name_of_task:
        return {"task": sources[0]}
    task_keys = named.get("task")
    if isinstance(task_keys, str):
        return {"sources": sources, "task": task_keys}

    # The keys that name columns stand in the task, except for that of the texts.
    named_columns = dict(task_keys or {})
    if "text_column" in named:
        named_columns["text_column"] = named["text_column"]
    kinds = _possible_kinds(teacher, head)
    if named_columns.get("kind") in KINDS:
        kinds = [named_columns["kind"]]
    for source in sources:
        check_source(source)

    # A teacher that tags words (`of_words`) reads rows of words, and any other one rows of texts.
    of_words = KINDS[head].of_words
    if _hold_texts_alone(sources, teacher, of_words=of_words):
        if "text_column" in named_columns:
            raise text_without_columns(named_columns["text_column"], sources)
        kind_of_texts = _kind_of_texts(teacher, kinds, sources[0])
        return {"sources": sources, "task": {"kind": kind_of_texts, "labelled": False}}
    first_row = _read_first_row(sources, of_words=of_words)
    if first_row is None:
        # The columns are not known before the run, which then expects the usual ones of the likeliest kind.
        likeliest_kind = kinds[0]
        return {"sources": sources, "task": {"kind": likeliest_kind}}

    corpus = _corpus_by_columns(kinds, first_row.columns, named_columns)
    if corpus is not None:
        return {"sources": sources, **corpus}
    _refuse_missing_columns(first_row, named_columns)
    raise RecipeError(
        f"The teacher '{teacher.title}' does {kinds[0].replace('_', ' ')}, which is taught on rows of "
        f"{KINDS[kinds[0]].rows}, and '{first_row.place}' has {list_columns(first_row.columns)}; give rows of that "
        "form or the name of a task, name the columns with --text-column and --label-column, or write a recipe "
        "(`limbeck recipe --example task`)."
    )


def _corpus_by_columns(
    kinds: Sequence[str], columns: set[str], named_columns: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the keys of a corpus of the first kind that the columns fit; None where they fit none.

    Args:
        kinds: The kinds, in the order in which they are tried: all with labels, and then all without.
        columns: The columns of the rows.
        named_columns: The columns that the user names, by their keys in a recipe.
    """
    for kind in kinds:
        corpus = _corpus_of_kind(kind, columns, named_columns)
        if corpus is not None:
            return corpus
    # Rows whose label the user names are never taken for rows without labels.
    names_label = "label_column" in named_columns or "label_columns" in named_columns
    if names_label:
        return None
    for kind in kinds:
        corpus = _unlabelled_corpus(kind, columns, named_columns)
        if corpus is not None:
            return corpus
    return None


def _refuse_missing_columns(first_row: _FirstRow, named: Mapping[str, Any]) -> None:
    """Refuse a column that the user names and that the rows lack.

    Args:
        first_row: The first row of the sources.
        named: Keys of the task and of the corpus that the user gives, among them those that name columns.

    Raises:
        RecipeError: naming the first such column.
    """
    if not first_row.columns:
        return  # There are no rows, which the caller refuses.
    for key, value in named.items():
        if key.endswith("_column"):
            columns = [value]
        elif key.endswith("_columns"):
            columns = list(value or ())
        else:
            continue
        for column in columns:
            if column is not None and column not in first_row.columns:
                raise RecipeError(
                    f"'{first_row.place}' has no column '{column}'; it has {list_columns(first_row.columns)}."
                )


def _possible_kinds(teacher: TeacherInfo, head: str) -> list[str]:
    """Return the kinds of rows that the teacher's head may be distilled on, in the order in which they are tried.

    Args:
        teacher: The teacher.
        head: Its head, which has the name of its kind of task.
    """
    has_one_number_as_output = KINDS[head].has_value
    if not has_one_number_as_output:
        return [head]
    # Such a head is a regression's or a reranker's. Few configurations say which, so that the columns of the rows have
    # to decide: those of a reranker (`ranking`) are a query and its documents.
    kind = kind_of_value(teacher.config)
    if kind is None:
        return ["ranking", head]
    return [kind]


def _corpus_of_kind(kind: str, columns: set[str], named: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the keys of a corpus of a kind, with the columns that it reads; None where a needed column is missing.

    Args:
        kind: The kind.
        columns: The columns of the rows.
        named: The columns that the user names, by their keys in a recipe.
    """
    facts = KINDS[kind]
    if facts.has_queries:
        query = named.get("query_column", "query")
        documents = named.get("document_columns") or _first_of(_USUAL_DOCUMENT_COLUMNS, columns)
        if not documents or not {query, *documents} <= columns:
            return None
        return {"task": {"kind": kind, "document_columns": documents}}

    # The other kinds read texts and a label, except for a few (such as tagging) whose columns have fixed names.
    if "text" not in facts.columns:
        needed = {named.get(f"{part}_column", part) for part in facts.columns}
        if not needed <= columns:
            return None
        return {"task": {"kind": kind}}

    labels = _label_columns(columns, named)
    texts = _named_texts(columns, named)
    if not labels or not texts or not {*labels, *texts} <= columns:
        return None
    task: dict[str, Any] = {"kind": kind}
    # Several label columns are not written here: they come from the user's keys, which are laid over these later.
    if "label_columns" not in named:
        task["label_column"] = labels[0]
    if len(texts) > 1:
        task["pair_column"] = texts[1]
    return {"text_column": texts[0], "task": task}


def _label_columns(columns: set[str], named: Mapping[str, Any]) -> list[str]:
    """Return the columns of the label: those that the user names, or one of a usual name; an empty list without one."""
    if "label_columns" in named:
        return list(named["label_columns"])
    if "label_column" in named:
        return [named["label_column"]]
    return _first_of(_LABELS, columns)


def _named_texts(columns: set[str], named: Mapping[str, Any]) -> list[str]:
    """Return the one or two columns of texts that the user names, else those of usual names."""
    if "text_column" not in named:
        return _first_of(_TEXTS, columns)
    texts = [named["text_column"]]
    if "pair_column" in named:
        texts.append(named["pair_column"])
    return texts


def _unlabelled_corpus(kind: str, columns: set[str], named: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the keys of a corpus of a kind whose rows have no labels; None where a column of its texts is missing."""
    facts = KINDS[kind]
    if facts.has_queries:
        return None  # Rows of queries have no labels in any case: `_corpus_of_kind` takes them as they are.
    task: dict[str, Any] = {"kind": kind, "labelled": False}
    texts = _named_texts(columns, named)
    if "text" in facts.columns and texts and set(texts) <= columns:
        if len(texts) > 1:
            task["pair_column"] = texts[1]
        return {"text_column": texts[0], "task": task}
    # Rows of questions have fixed columns. Tagged words are in the column `tokens`, or in one that is named for texts.
    if facts.has_answers and {"question", "context"} <= columns:
        return {"task": task}
    if facts.of_words and "tokens" in columns:
        return {"task": task}
    if facts.of_words and len(texts) == 1:
        return {"task": {**task, "tokens_column": texts[0]}}
    return None


def _hold_texts_alone(sources: list[str], teacher: TeacherInfo, *, of_words: bool) -> bool:
    """Whether all sources are texts without labels: text files that are no tables, pages, or docstrings.

    `holds_texts_alone` goes by the suffixes of files. A `.txt` file may be a table all the same: of columns between
    tabs, or with a tagged word on each line, as CoNLL's files have it. So the first row of such a file is read too.

    Args:
        sources: The sources.
        teacher: The teacher, whose classes are the tags of words.
        of_words: Whether the teacher tags words.
    """
    for source in sources:
        if not holds_texts_alone(source):
            return False
        # Sources without files, such as the docstrings of a package, are of kinds that never have labels.
        may_have_files = source_kind(source).is_labelled
        if not may_have_files:
            continue
        for file in find_files(source, "").files:
            if suffix_of(file) == ".txt" and _is_table(file, teacher, of_words=of_words):
                return False
    return True


def _is_table(file: FilePath, teacher: TeacherInfo, *, of_words: bool) -> bool:
    """Whether the first row of a text file is one of a table, or of tagged words."""
    first_row = next(iter(read_rows(file, SourceReport(), of_words=of_words)), None)
    if first_row is None:
        return False
    if not of_words:
        return len(first_row.values) > 1
    # Of a plain text the reader takes the last word of each line for a tag, so the tags have to look like tags.
    tags: Any = first_row.values.get("tags") or ()
    return all(tag in teacher.labels or _TAG_PATTERN.fullmatch(str(tag)) for tag in tags)


def _kind_of_texts(teacher: TeacherInfo, kinds: list[str], place: str) -> str:
    """Return the kind of task whose rows are texts alone.

    Raises:
        RecipeError: where each of the teacher's kinds needs more than a text.
    """
    for kind in kinds:
        reads_texts = "text" in KINDS[kind].columns or "tokens" in KINDS[kind].columns
        if reads_texts:
            return kind
    raise RecipeError(
        f"The teacher '{teacher.title}' does {kinds[0].replace('_', ' ')}, which is taught on rows of "
        f"{KINDS[kinds[0]].rows}, but '{place}' has only texts; give a table with the columns "
        f"{_list_needed_columns(kinds[0])}."
    )


def _list_needed_columns(kind: str) -> str:
    """Return the columns that rows without labels need, in words."""
    columns = [column for column in KINDS[kind].columns if column != "answers"]
    return " and ".join(columns)


def _first_of(choices: Sequence[Sequence[str]], columns: set[str]) -> list[str]:
    """Return the first group of names whose columns are all there; an empty list where there is no such group."""
    for names in choices:
        if set(names) <= columns:
            return list(names)
    return []


class _FirstRow(NamedTuple):
    """The first row of sources: the file or source it is in, and its columns; an empty set for a file without rows."""

    place: str
    columns: set[str]


def _read_first_row(sources: list[str], *, of_words: bool) -> _FirstRow | None:
    """Read the first row of sources.

    Args:
        sources: The sources.
        of_words: Whether the rows are sentences of labelled words, whose tables have one word in each line.

    Returns:
        The first row. It has no columns where the sources were looked at and hold no labelled rows, which the caller
        refuses. None where they were not looked at, since all of them are on the network or have to be read whole.
    """
    try:
        files = local_files(sources)
    except CorpusError:
        # The source has files, but none of labelled rows.
        return _FirstRow(sources[0], set())
    for file in files:
        if suffix_of(file) == ".json":
            continue  # One JSON document can only be read as a whole, which may take long.
        # The first file decides, even if it has no rows.
        first_row = next(iter(read_rows(file, SourceReport(), of_words=of_words)), None)
        columns: set[str] = set()
        if first_row is not None:
            columns = {str(name) for name in first_row.values}
        return _FirstRow(str(file), columns)
    return None
