"""`TargetKeys`: the keys of a teacher that is a file of texts with what a model said of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from limbeck.core.fields import Grown, Name, Place
from limbeck.core.strict import Strict
from limbeck.corpus.files.file_readers import names_file
from limbeck.corpus.sources.hub_datasets import HUB_PREFIX
from limbeck.recipe.corpus import sources_alone
from limbeck.targets.target_file import ARRAY, TargetFile, is_array

_USUAL_TEXT_COLUMN = "text"
_RERANKER = "reranker"
"""The method that learns the scores of the documents of a query."""
_COLUMNS = ("text", "pair", "vector", "scores", "score")
"""Keys of a teacher that name the columns of a file of targets."""
TARGET_KEYS = ("targets", *_COLUMNS)
"""The keys of a file of targets, and of its columns."""


class ScoresSpec(Strict):
    """Scores of classes in a file: probabilities, logits, or the class alone."""

    column: Name | None = None
    """The column of the scores; not given for an array, whose rows are the scores."""
    classes: list[Name]
    """Names of the classes, in the order of the scores."""
    form: Literal["probabilities", "logits", "labels"] = Field(
        "probabilities",
        description=(
            "What the column has: probabilities or logits, as a list or by the names of the classes, or labels, the "
            "name or number of one class."
        ),
    )

    @model_validator(mode="after")
    def _classes_differ(self) -> Self:
        """Refuse fewer than two classes, and classes of the same name."""
        if len(self.classes) < 2:
            raise ValueError(
                f"'classes' is {self.classes}, but scores belong to at least two classes: name all classes"
            )
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"two of the classes {self.classes} have the same name: give each class its own")
        return self


class TargetKeys(Grown):
    """A file of texts with what a model said of each; nothing else of that model is needed."""

    targets: Place | None = Field(
        None,
        description=(
            "A file of texts and what the teacher said of each, in place of a model: a table (.parquet, .jsonl, .csv), "
            "hub:owner/name, or an array (.npy) beside a text file with a line for each row. It has one of vector, "
            "scores and score."
        ),
    )
    text: Name | None = Field(
        None,
        description=(
            "Of targets: the column of the texts, by default text; for an array the text file, by default of the same "
            "name."
        ),
    )
    pair: Name | None = None
    """Of targets: the column of the second texts, such as the documents that are scored for queries."""
    vector: Name | None = None
    """Of targets: the column of sentence vectors; not given for an array."""
    scores: ScoresSpec | None = None
    """Of targets: the scores of classes."""
    score: Name | None = None
    """Of targets: the column of one number for each text or pair, such as a similarity or a relevance."""

    @model_validator(mode="after")
    def _one_kind_of_targets(self) -> Self:
        """Refuse columns without a file, and a file without exactly one kind of targets."""
        named_columns = [name for name in _COLUMNS if getattr(self, name) is not None]
        if self.targets is None:
            if named_columns:
                raise ValueError(
                    f"'{named_columns[0]}' names a column of a file of targets, but no file is given: give "
                    f"'targets', or leave '{named_columns[0]}' out"
                )
            return self
        kinds = [name for name in ("vector", "scores", "score") if name in named_columns]
        if is_array(self.targets):
            self._check_array()
        elif len(kinds) != 1:
            kinds_in_words = " and ".join(kinds) or "none"
            raise ValueError(
                "'targets' needs exactly one of the keys 'vector', 'scores' and 'score', which says the column to "
                f"learn from; given: {kinds_in_words}"
            )
        elif self.scores is not None and self.scores.column is None:
            raise ValueError("'scores' has no 'column': name the column that holds the scores")
        if self.pair is not None and self.vector is not None:
            raise ValueError(
                "'pair' applies only to scores of two texts, but 'vector' is the vector of one text: leave 'pair' "
                "or 'vector' out"
            )
        return self

    def _check_array(self) -> None:
        """Refuse the names of columns, which an array does not have."""
        column = self.vector or self.score or self.pair
        if self.scores is not None:
            column = column or self.scores.column
        if column is not None:
            raise ValueError(
                f"an array ({ARRAY}) has no column '{column}', because its rows are vectors or scores of classes: "
                "leave out the key with the name of the column"
            )

    @property
    def target_file(self) -> TargetFile | None:
        """The file of targets; None for another teacher."""
        if self.targets is None:
            return None
        if self.text is not None:
            text = self.text
        elif is_array(self.targets):
            # An array has no columns: its texts are the lines of another file.
            text = str(PurePath(self.targets).with_suffix(".txt"))
        else:
            text = _USUAL_TEXT_COLUMN

        # `scores` are of several classes, `score` is one number for each text or pair.
        if self.scores is not None:
            classes = tuple(self.scores.classes)
            return TargetFile(
                self.targets,
                text,
                column=self.scores.column,
                form=self.scores.form,
                pair=self.pair,
                classes=classes,
            )
        if self.score is not None:
            return TargetFile(self.targets, text, column=self.score, form="score", pair=self.pair)
        return TargetFile(self.targets, text, column=self.vector, form="vector")


def names_targets(place: str) -> bool:
    """Whether a name is by its form that of a file of targets, and not that of a model."""
    return is_array(place) or place.startswith(HUB_PREFIX) or names_file(place)


def target_file_of(teacher: Any) -> TargetFile | None:
    """Return the file of targets that a teacher's keys name; None for another teacher, and for keys with mistakes."""
    if not isinstance(teacher, Mapping) or "targets" not in teacher:
        return None
    keys = {key: value for key, value in teacher.items() if key in TARGET_KEYS}
    try:
        return TargetKeys.model_validate(keys).target_file
    except ValidationError:
        # The check of the whole recipe reports the mistakes.
        return None


def method_of_targets(file: TargetFile) -> str:
    """Return the usual method for what a file has: for vectors, scores of texts, or scores of pairs."""
    if file.form == "vector":
        return "aligned_embedding"
    if file.form == "score" and file.pair is not None:
        return _RERANKER
    return "output_distribution"


def corpus_of_targets(file: TargetFile, method: Any, corpus: Any = None) -> Any:
    """Return the corpus of a recipe whose teacher is a file of targets, as far as it follows from the file.

    Args:
        file: The file.
        method: The first stage's method, by its name or with its options.
        corpus: The corpus that is given; None takes the texts of the file.

    Returns:
        The corpus; a given one with the task that scores need, or as it is where nothing follows from the file.
    """
    name = method.get("name") if isinstance(method, Mapping) else method
    task = _task_of(file, name)
    if corpus is not None:
        # Scores are taught on rows of a task. The task of single texts names no further columns, so it can be added.
        # That of pairs names the columns of the second texts, which the file has, but other text may not have.
        if task is None or file.pair is not None:
            return corpus
        corpus_keys = sources_alone(corpus)
        lacks_task = isinstance(corpus_keys, Mapping) and corpus_keys.get("task") is None
        if not lacks_task:
            return corpus
        return {**corpus_keys, "task": task}

    # The texts of an array are the lines of a file, without columns. A table has its texts in a column, which the task
    # of a reranker names itself.
    texts_of_file: dict[str, Any] = {"sources": [file.text if file.is_array else file.place]}
    if task is not None:
        texts_of_file["task"] = task
    if not file.is_array and name != _RERANKER:
        texts_of_file["text_column"] = file.text
    if file.is_array and task is None:
        texts_of_file["separator"] = "line"
    return texts_of_file


def _task_of(file: TargetFile, method: Any) -> dict[str, Any] | None:
    """Return the task of a corpus on which scores of a file are taught; None for vectors."""
    if file.form == "vector":
        return None
    if method == _RERANKER and file.pair is not None:
        return {"kind": "ranking", "query_column": file.text, "document_columns": [file.pair]}
    task: dict[str, Any] = {"kind": "classification", "labelled": False}
    if file.form == "score":
        task["kind"] = "regression"
    if file.pair is not None:
        task["pair_column"] = file.pair
    return task
