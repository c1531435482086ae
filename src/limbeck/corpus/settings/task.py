"""`TaskSpec`: the labels of a corpus as a recipe names them: the kind of task, and the columns of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from limbeck.core.fields import Grown, Name, Number, Place
from limbeck.core.kinds import KINDS, KindName, LabelKind, check_kind
from limbeck.core.metric_names import MetricNames, PositiveClass, problems_of_metrics
from limbeck.corpus.files.file_kinds import Quotes

_KEYS_OF_LABEL: Mapping[LabelKind, tuple[str, ...]] = {
    "class": ("pair_column", "label_column", "class_weights", "positive"),
    "classes": ("pair_column", "label_column", "label_columns", "label_lists", "class_weights"),
    "span": ("question_column", "context_column", "answers_column", "stride"),
    "relevance": ("query_column", "document_columns", "documents_per_query", "label_column"),
    "token": ("tokens_column", "tags_column", "class_weights"),
}
"""Keys of `TaskSpec` that a kind of label reads."""
_KEYS_OF_TEXT_LABEL = ("pair_column", "label_column")
"""The same for kinds of label that `_KEYS_OF_LABEL` does not list."""

_KEYS_OF_ANY_TASK = ("kind", "name", "labelled")
"""Keys of `TaskSpec` that suit every kind of task, and a task by name too."""

_KEYS_OF_LABELS = ("label_column", "label_columns", "label_lists", "tags_column", "answers_column", "class_weights")
"""Keys of `TaskSpec` that mean nothing to rows without labels."""


class TaskSpec(Grown):
    """The labels of a corpus: rows are distilled one by one, with a teacher that was fine-tuned on the task.

    In place of all this the name of a task may stand, or the path of its YAML file, as `limbeck evaluate` takes them.
    """

    name: Place | None = None
    """A task whose files, columns and classes are known, such as mrpc, squad or my-task.yaml; kind follows from it."""
    kind: Annotated[KindName, AfterValidator(check_kind)]
    """What is predicted."""
    labelled: bool = Field(
        True,
        description="Whether rows have labels; false teaches what the teacher says of texts without labels, from "
        "tables of texts or pairs, or from text files with a text a line.",
    )
    columns: list[Name] | None = Field(
        None,
        min_length=1,
        description="Names of the fields of .tsv, .csv and .txt tables without a header, such as [source, label, note, "
        "text] for CoLA's; further fields are ignored.",
    )
    quotes: Quotes | None = Field(
        None,
        description="Quotation marks in tables with tabs. fields: they enclose a field, as pandas writes them; "
        "characters: they are ordinary characters, as in GLUE's files. Default: limbeck looks at the file.",
    )
    pair_column: Name | None = None
    """Column of the second text, for tasks on pairs."""
    label_column: Name = "label"
    """Column of the class (by name or number), of several (a list, or a|b), the value, or the relevance (if any)."""
    label_columns: list[Name] | None = None
    """multi_label: instead of label_column, a column of 0 and 1 for each class, named after the class."""
    label_lists: Literal["numbers", "flags"] | None = Field(
        None,
        description="multi_label: the meaning of numbers in a list. numbers: the numbers of the row's classes; flags: "
        "1 or 0 for each class. Default: limbeck looks at all rows.",
    )
    class_weights: Literal["balanced"] | dict[str, Number] | list[Number] | None = None
    """Weights of the classes in hard labels: balanced, by name (others: 1), or a list in the teacher's order."""
    metric: MetricNames | None = None
    """Metrics of development rows, the main one first, as in a task file; default: the usual ones of the kind."""
    positive: PositiveClass = None
    """classification: the class that the metric f1 of development rows is of; without it there is macro_f1 instead."""
    question_column: Name = "question"
    """Question answering: column of the question."""
    context_column: Name = "context"
    """Question answering: column of the passage."""
    answers_column: Name = "answers"
    """Question answering: column of the answers, as SQuAD's."""
    stride: int = Field(64, ge=0, le=1_000_000)
    """Question answering: tokens that neighbouring windows of a passage share."""
    query_column: Name | None = None
    """Ranking: column of the query; default: query."""
    document_columns: list[Name] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Ranking: columns of a query's documents, each a text or a list of texts; of several, such as "
        "[positive, negatives], the first holds the relevant ones; default: [documents].",
    )
    documents_per_query: int | None = Field(None, ge=1, le=1_000_000)
    """Ranking: the most documents of a query that are read together; more become several groups; default: 16."""
    tokens_column: Name | None = Field(
        None,
        description=(
            "Token classification: column of a sentence's words; default: tokens, in tables with a word per line the "
            "first field. Their fields may also be given by number, from 1."
        ),
    )
    tags_column: Name | None = Field(
        None,
        description="Token classification: column of the words' classes; default: tags, in such tables the last field.",
    )
    added = frozenset(
        {"name", "columns", "label_columns", "class_weights", "query_column", "document_columns", "documents_per_query"}
        | {"tokens_column", "tags_column", "quotes", "label_lists", "metric", "positive", "labelled"}
    )

    @model_validator(mode="after")
    def _keys_suit_the_kind(self) -> TaskSpec:
        """Refuse keys that do not apply to the kind of the task, or that its definition has already."""
        kind = KINDS[self.kind]
        # Every kind has metrics.
        applicable_keys = {"metric", *_KEYS_OF_LABEL.get(kind.label, _KEYS_OF_TEXT_LABEL)}
        # Tables with a word per line have no header and no quotation marks: their fields are known by their numbers.
        if not kind.of_words:
            applicable_keys |= {"columns", "quotes"}
        for key in TaskSpec.model_fields:
            if key in _KEYS_OF_ANY_TASK or self._has_default(key):
                continue
            if key not in applicable_keys:
                raise ValueError(f"{key} does not apply to a task of the kind {self.kind}: leave {key} out")
            if self.name is None:
                continue
            if key in ("metric", "positive"):
                raise ValueError(f"the task '{self.name}' already defines its metrics: leave out {key}")
            if key.endswith(("columns", "_column")):
                raise ValueError(
                    f"the task '{self.name}' already defines its columns: leave out {key}, or the task's name"
                )
        return self

    @model_validator(mode="after")
    def _metrics_suit_the_kind(self) -> TaskSpec:
        """Refuse metrics that the kind does not have, and a positive class that no metric reads.

        The message names the first problem.
        """
        facts = KINDS[self.kind]
        problems = problems_of_metrics(
            self.metric or (),
            self.positive,
            known=facts.metrics,
            of_class=facts.metrics_of_class,
            kind=self.kind,
        )
        first_problem = next(problems, None)
        if first_problem is not None:
            raise ValueError(first_problem)
        return self

    @model_validator(mode="after")
    def _unlabelled_rows_have_no_labels(self) -> TaskSpec:
        """Refuse keys of labels for rows without labels, and kinds or tasks whose rows always have them."""
        if self.labelled:
            return self
        # Rows of queries may lack labels in any case.
        if KINDS[self.kind].has_queries:
            raise ValueError(
                f"'labelled' does not apply to {self.kind}, whose rows need no labels: leave 'labelled' out"
            )
        if self.name is not None:
            raise ValueError(
                f"the rows of the task '{self.name}' have labels, so 'labelled: false' is wrong: leave out "
                "'labelled', or the task's name"
            )
        for name in _KEYS_OF_LABELS:
            if not self._has_default(name):
                raise ValueError(
                    f"{name} applies only to rows with labels, but 'labelled' is false: leave {name} or 'labelled' out"
                )
        return self

    @model_validator(mode="after")
    def _columns_are_different(self) -> TaskSpec:
        """Refuse one name for several columns."""
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise ValueError(
                f"'columns' is {', '.join(self.columns)}, which names a field twice: give each field a different name"
            )
        query_column = self.query_column or "query"
        document_columns = self.document_columns or ["documents"]
        ranking_columns = [query_column, *document_columns]
        if len(set(ranking_columns)) < len(ranking_columns):
            raise ValueError(
                f"the columns for the query and the documents must differ, but they are {ranking_columns}: give "
                "each another column"
            )
        return self

    def _has_default(self, key: str) -> bool:
        """Whether a key has its default, which a user may have written too."""
        default = type(self).model_fields[key].get_default(call_default_factory=True)
        return bool(getattr(self, key) == default)
