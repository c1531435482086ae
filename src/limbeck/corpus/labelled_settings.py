"""`LabelledSettings`: everything that decides what a labelled corpus contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from limbeck.errors import CorpusError, suggestion

LabelledTask: TypeAlias = Literal["classification", "regression", "question_answering"]


@dataclass(frozen=True)
class LabelledSettings:
    """What to read, which columns hold text and label, and how rows become token sequences.

    Args:
        task: What the label is: a class, a value, or the place of an answer in a context.
        sources: Files, folders, globs, or Hub data sets (`hub:owner/name`); a lone string is one source.
        length: Most tokens in a row, special tokens included. Longer texts are cut, the longer of a pair first; a
            longer context becomes several windows.
        text_column: Column of the text.
        pair_column: Column of the second text, for tasks on pairs.
        label_column: Column of the class (a name or a number), or of the value.
        question_column: Column of the question.
        context_column: Column of the context.
        answers_column: Column of the answers, `{"text": [...], "answer_start": [...]}` as SQuAD has them.
        labels: Class names in the order of their numbers, from the teacher's `id2label`; for classification only.
        stride: Tokens of a context that neighbouring windows share.
        held_out: Share of the texts (contexts) kept from training, chosen by a hash of each: all rows on one text stay
            together, whatever else is in the corpus.
        max_rows: Read no more rows than this, in the order of the sources.

    Raises:
        CorpusError: if a value cannot be meant.
    """

    task: LabelledTask
    sources: Sequence[str]
    length: int = 128
    text_column: str = "text"
    pair_column: str | None = None
    label_column: str = "label"
    question_column: str = "question"
    context_column: str = "context"
    answers_column: str = "answers"
    labels: Sequence[str] = ()
    stride: int = 64
    held_out: float = 0.01
    max_rows: int | None = None

    def __post_init__(self) -> None:
        given = (self.sources,) if isinstance(self.sources, str) else self.sources
        object.__setattr__(self, "sources", tuple(map(str, given)))
        object.__setattr__(self, "labels", tuple(map(str, self.labels)))
        if self.task not in get_args(LabelledTask):
            raise CorpusError(f"Unknown task '{self.task}'.{suggestion(self.task, get_args(LabelledTask))}")
        if not self.sources:
            raise CorpusError("The corpus has no source: give at least one file, folder or data set.")
        if len(set(self.labels)) < len(self.labels):
            raise CorpusError(f"Two classes have the same name in {', '.join(self.labels)}: rename them in id2label.")
        if self.length < 1:
            raise CorpusError(f"length is {self.length}: a row needs at least one token.")
        if self.stride < 0:
            raise CorpusError(f"stride is {self.stride}: give 0 or more.")
        if not 0 <= self.held_out < 1:
            raise CorpusError(f"held_out is {self.held_out}: give a share from 0 up to, not including, 1.")
        if self.max_rows is not None and self.max_rows < 1:
            raise CorpusError(f"max_rows is {self.max_rows}: give 1 or more, or leave it out.")

    @property
    def columns(self) -> dict[str, str]:
        """The columns that every row must have, each with the name of its setting."""
        if self.task == "question_answering":
            names = ("question_column", "context_column", "answers_column")
        else:
            names = ("text_column", *(("pair_column",) if self.pair_column is not None else ()), "label_column")
        return {getattr(self, name): name for name in names}
