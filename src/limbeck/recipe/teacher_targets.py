"""`TargetKeys`: the keys of a teacher that is a file of texts with what a model said of each."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from limbeck.core.fields import Grown, Name, Place
from limbeck.core.strict import Strict
from limbeck.targets.target_file import ARRAY, TargetFile, is_array

_USUAL_TEXT_COLUMN = "text"
_COLUMNS = ("text", "pair", "vector", "scores", "score")
"""Keys that describe the columns of a file."""


class ScoresSpec(Strict):
    """Scores of classes in a file: probabilities, logits, or the class alone."""

    column: Name | None = None
    """The column of the scores; not given for an array, whose rows are the scores."""
    classes: Annotated[list[Name], Field(min_length=2)]
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
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"two classes have the same name in {self.classes}")
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
        given = [name for name in _COLUMNS if getattr(self, name) is not None]
        if self.targets is None:
            if given:
                raise ValueError(f"{given[0]} is of a file of targets: give targets, or leave it out")
            return self
        kinds = [name for name in ("vector", "scores", "score") if name in given]
        if is_array(self.targets):
            self._check_array()
        elif len(kinds) != 1:
            named = " and ".join(kinds) or "none"
            raise ValueError(
                f"targets has one of vector, scores and score, which name its column, but {named} is given"
            )
        elif self.scores is not None and self.scores.column is None:
            raise ValueError("scores has no column: name the column of the scores")
        if self.pair is not None and self.vector is not None:
            raise ValueError("pair is for scores of two texts, but a vector is of one: leave pair or vector out")
        return self

    def _check_array(self) -> None:
        """Refuse the names of columns, which an array does not have."""
        column = self.vector or self.score or self.pair
        if self.scores is not None:
            column = column or self.scores.column
        if column is not None:
            raise ValueError(f"an array ({ARRAY}) has no column '{column}': its rows are vectors, or scores of classes")

    @property
    def target_file(self) -> TargetFile | None:
        """The file of targets; None for another teacher."""
        if self.targets is None:
            return None
        text = self.text
        if text is None:
            text = _USUAL_TEXT_COLUMN
            if is_array(self.targets):
                text = str(PurePath(self.targets).with_suffix(".txt"))
        if self.scores is not None:
            classes = tuple(self.scores.classes)
            return TargetFile(self.targets, text, self.scores.column, self.scores.form, self.pair, classes)
        if self.score is not None:
            return TargetFile(self.targets, text, self.score, "score", self.pair)
        return TargetFile(self.targets, text, self.vector, "vector")
