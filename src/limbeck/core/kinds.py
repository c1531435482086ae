"""Facts of kinds of tasks, such as `classification`; the behaviour of each kind is in `limbeck.kinds`.

A *kind* is a type of task: what its rows and labels are, and which head of a model predicts them. Kinds with a head can
be trained; recipes, methods and heads name them. The others are only evaluated, by comparing sentence vectors. Plugins
may add kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Literal, TypeAlias

from limbeck.core.plugins import hint_of_plugins, load_entry_point, load_plugins
from limbeck.errors import suggestion

KindName: TypeAlias = str
"""The name of a kind with a head, the package's or a plugin's, see `check_kind`."""

LabelKind: TypeAlias = Literal["none", "token", "class", "classes", "value", "span", "relevance"]
"""The labels of rows, see `KindFacts.label`; `corpus.batches.collating.PadCollator` has their shapes in batches."""

ENTRY_POINTS = "limbeck.kinds"
"""The group of entry points by which distributions add kinds."""


@dataclass(frozen=True)
class KindFacts:
    """Facts of a kind of task.

    Attributes:
        label: What a row is labelled with: a class, any number of `classes`, a value, the first and last token of an
            answer (`span`), a class for each word (`token`: its first token has it), or the relevance of a document to
            a query.
        head: End of the names of the transformers classes that predict it, such as `ForSequenceClassification`; None
            where only vectors are compared.
        columns: Columns that a row is made of, by their names in task files, in the order of messages.
        metrics: Names of the metrics that can score it, its default first.
        problem_type: `problem_type` of the head's configuration, by which `transformers` chooses the loss; None where
            the class of the model decides it.
        has_classes: Whether its labels are named classes, in the order of the head's outputs.
        output: Name of the only output in a saved configuration (`id2label`); it distinguishes kinds with one number.
        has_text_files: Whether rows may name their texts by ids, with the texts in files of their own.
        outputs: Names of the head's outputs, as `transformers` and exported graphs have them.
        length: Most tokens of a row in a recipe that is written for the user.
        usual_tokens: Rough mean of the tokens of a row, of a query with all of its documents. It is used where no row
            can be read early.
        rows: What a row is made of, in words.
        metrics_of_class: Those of `metrics` that score one class, which a task names as its `positive`.
        metrics_by_name: Those of `metrics` that score a task only if it names them.
    """

    label: LabelKind
    head: str | None
    columns: tuple[str, ...] = ("text", "pair", "label")
    metrics: tuple[str, ...] = ()
    problem_type: str | None = None
    has_classes: bool = False
    output: str | None = None
    has_text_files: bool = False
    outputs: tuple[str, ...] = ("logits",)
    length: int = 128
    usual_tokens: int = 50
    rows: str = "a text and its label"
    metrics_of_class: tuple[str, ...] = ()
    metrics_by_name: tuple[str, ...] = ()

    def output_count(self, classes: int) -> int | None:
        """Return the number of outputs of a head; None where the class of the model decides it.

        Args:
            classes: Number of the task's classes.
        """
        if self.has_classes:
            return classes
        return 1 if self.has_value else None

    def default_metrics(self, positive: str | None) -> tuple[str, ...]:
        """Return the names of the metrics of a task that names none.

        Args:
            positive: The class that metrics of one class are of; None leaves these metrics out.
        """
        names = []
        for name in self.metrics:
            lacks_class = name in self.metrics_of_class and positive is None
            if not lacks_class and name not in self.metrics_by_name:
                names.append(name)
        return tuple(names)

    @property
    def has_labels(self) -> bool:
        """Whether rows have labels; text without labels has none."""
        return self.label != "none"

    @property
    def has_value(self) -> bool:
        """Whether one number is predicted."""
        return self.label in ("value", "relevance")

    @property
    def has_queries(self) -> bool:
        """Whether a row is a query with its documents, which are scored together; their labels may be missing."""
        return self.label == "relevance"

    @property
    def of_vectors(self) -> bool:
        """Whether sentence vectors are compared, and nothing is trained."""
        return self.head is None and self.has_labels

    @property
    def has_one_class(self) -> bool:
        """Whether a row has one class."""
        return self.label == "class"

    @property
    def has_several(self) -> bool:
        """Whether a row may have several classes, each a decision by itself."""
        return self.label == "classes"

    @property
    def has_answers(self) -> bool:
        """Whether the answer to a question is marked in a context, which is read in overlapping windows."""
        return self.label == "span"

    @property
    def of_words(self) -> bool:
        """Whether each word of a sentence is labelled."""
        return self.label == "token"

    @property
    def of_tokens(self) -> bool:
        """Whether tokens are scored, rather than a whole text or pair."""
        return self.label in ("token", "span")


class KindTable(Mapping[str, KindFacts]):
    """Name to facts: the package's kinds, and those that plugins have added.

    Args:
        rows: The facts of the package's kinds.
    """

    def __init__(self, rows: Mapping[str, KindFacts]) -> None:
        self._rows = dict(rows)
        # Names without facts, for which the entry points of distributions were searched.
        self._sought_names: set[str] = set()

    def add(self, name: str, facts: KindFacts) -> None:
        """Add the facts of a plugin's kind; adding the same facts again changes nothing.

        Raises:
            ValueError: if another kind has the name.
        """
        present = self._rows.get(name)
        if present is not None and present != facts:
            raise ValueError(f"the kind '{name}' is already registered with other facts: give yours another name")
        self._rows[name] = facts

    def __getitem__(self, name: str) -> KindFacts:
        if name not in self._rows:
            self._read_plugins(name)
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def _read_plugins(self, name: str) -> None:
        """Run the user's plugin files, and import the distribution that adds a kind: both add facts as they run.

        Raises:
            PluginError: for one that cannot be loaded.
        """
        load_plugins()
        if name in self._sought_names:
            return
        # The name is noted before the import: the module may ask for the kind that it is about to add, which comes here
        # again.
        self._sought_names.add(name)
        for entry_point in entry_points(group=ENTRY_POINTS, name=name):
            load_entry_point(entry_point)


_OF_TEXTS = "ForSequenceClassification"
_OF_RANKINGS = ("ndcg_at_10", "mrr_at_10")
"""Metrics of rows of queries and their documents."""

KINDS = KindTable(
    {
        "classification": KindFacts(
            label="class",
            head=_OF_TEXTS,
            metrics=("accuracy", "f1", "macro_f1", "micro_f1", "weighted_f1", "matthews"),
            metrics_of_class=("f1",),
            metrics_by_name=("micro_f1", "weighted_f1"),
            problem_type="single_label_classification",
            has_classes=True,
        ),
        "multi_label": KindFacts(
            label="classes",
            head=_OF_TEXTS,
            columns=("text", "pair", "label", "label_columns"),
            metrics=("micro_f1", "macro_f1", "weighted_f1", "accuracy", "mean_average_precision"),
            metrics_by_name=("weighted_f1",),
            problem_type="multi_label_classification",
            has_classes=True,
        ),
        "regression": KindFacts(
            label="value",
            head=_OF_TEXTS,
            metrics=("pearson", "spearman"),
            problem_type="regression",
            output="value",
        ),
        "question_answering": KindFacts(
            label="span",
            head="ForQuestionAnswering",
            columns=("question", "context", "answers"),
            metrics=("exact_match", "f1_answer"),
            outputs=("start_logits", "end_logits"),
            length=384,
            usual_tokens=150,
            rows="a question, a context and answers",
        ),
        "token_classification": KindFacts(
            label="token",
            head="ForTokenClassification",
            columns=("tokens", "tags"),
            usual_tokens=30,
            rows="words and their tags",
            metrics=("f1_entity", "precision_entity", "recall_entity", "accuracy"),
            has_classes=True,
        ),
        "ranking": KindFacts(
            label="relevance",
            head=_OF_TEXTS,
            columns=("query", "documents"),
            metrics=_OF_RANKINGS,
            problem_type="regression",
            output="relevance",
            length=256,
            usual_tokens=650,  # Five documents of 130 tokens.
            rows="a query and its documents",
        ),
        "similarity": KindFacts(label="value", head=None, metrics=("spearman", "pearson")),
        "retrieval": KindFacts(
            label="relevance",
            head=None,
            columns=("query", "documents"),
            metrics=(*_OF_RANKINGS, "recall_at_10", "recall_at_100", "accuracy_at_1"),
            metrics_by_name=("accuracy_at_1",),
            has_text_files=True,
        ),
    }
)
"""Name to facts. The last two are kinds of evaluation alone: the cosine of two sentence vectors, or of a query's and
those of all documents."""

KIND_NAMES: tuple[KindName, ...] = tuple(name for name, facts in KINDS.items() if facts.head is not None)
"""The package's kinds with a head."""


def kinds_with_head() -> list[KindName]:
    """List the kinds with a head: the package's, and those that plugins have added."""
    load_plugins()
    for entry_point in entry_points(group=ENTRY_POINTS):
        _ = entry_point.name in KINDS  # Looking a kind up imports its distribution, which adds the facts.
    return [name for name, facts in KINDS.items() if facts.head is not None]


def check_kind(name: str) -> KindName:
    """Return the name of a kind with a head as it is.

    Raises:
        ValueError: for another name, with the nearest one.
    """
    if name not in KINDS:
        problem = f"Unknown kind '{name}'."
    elif KINDS[name].head is None:
        problem = f"'{name}' is a kind of evaluation alone, on which nothing is trained."
    else:
        return name
    raise ValueError(f"{problem}{suggestion(name, kinds_with_head())}{hint_of_plugins('kind')}")


def own_kind_like(name: str) -> str:
    """Return the package's kind whose rows have the same labels as a plugin's kind; any other name as it is."""
    facts = kind_of(name)
    if name in KIND_NAMES or not facts.has_labels:
        return name
    for own_name in KIND_NAMES:
        if KINDS[own_name].label == facts.label:
            return own_name
    return name


def kind_of(name: str | None) -> KindFacts:
    """Return the facts of a kind of task or head; facts without labels for text, masked language models and None."""
    if name in _WITHOUT_LABELS or name not in KINDS:
        return _NO_KIND
    return KINDS[name]


_WITHOUT_LABELS = (None, "text", "masked_lm")
"""Names of tasks and heads that are not kinds. They are no reason to load plugins."""
_NO_KIND = KindFacts(label="none", head=None)


def are_made_up(classes: Sequence[str]) -> bool:
    """Whether classes have no names but those that `transformers` makes up (`LABEL_0` …), or bare numbers."""
    names_of_transformers = [f"LABEL_{number}" for number in range(len(classes))]
    bare_numbers = [str(number) for number in range(len(classes))]
    return list(classes) in (names_of_transformers, bare_numbers)
