"""Kinds of tasks, a row each: what corpora, models, methods and evaluations need to know of a kind.

Rooms ask a row for its facts and compare no names, so a new kind is a row here and what is new about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

KindName: TypeAlias = Literal[
    "classification", "multi_label", "regression", "question_answering", "token_classification", "ranking"
]
"""Kinds that have a head: those of corpora, methods, heads and fine-tuned tasks, by their name in each."""
KIND_NAMES: tuple[KindName, ...] = get_args(KindName)

LabelKind: TypeAlias = Literal["none", "token", "class", "classes", "value", "span", "relevance"]
"""What the labels of a batch are; `corpus.collating.PadCollator` has their shapes."""


@dataclass(frozen=True)
class Kind:
    """What follows from the kind of a task.

    Attributes:
        label: What a row is labelled with: a class, any number of `classes`, a value, the first and last token of an
            answer (`span`), a class for each word (`token`: its first token has it), or the relevance of a document to
            a query.
        head: End of the names of the classes of models that predict it; None where nothing but vectors are compared.
        problem_type: `problem_type` of the head's configuration, by which `transformers` chooses the loss; None where
            the class of the model decides it.
        has_classes: Whether its labels are named classes, in the order of the head's outputs.
        output: Name of the one output in a configuration (`id2label`), by which kinds with one number are told apart.
    """

    label: LabelKind
    head: str | None
    problem_type: str | None = None
    has_classes: bool = False
    output: str | None = None

    @property
    def has_value(self) -> bool:
        """Whether one number is predicted."""
        return self.label in ("value", "relevance")

    @property
    def has_queries(self) -> bool:
        """Whether rows are documents of queries, read and scored together; their labels may be missing."""
        return self.label == "relevance"

    @property
    def of_vectors(self) -> bool:
        """Whether sentence vectors are compared, and nothing is trained."""
        return self.head is None and self.label != "none"

    @property
    def has_several(self) -> bool:
        """Whether a row may have several classes, each a decision by itself."""
        return self.label == "classes"

    @property
    def has_answers(self) -> bool:
        """Whether the place of an answer in a context is predicted, window by window."""
        return self.label == "span"

    @property
    def of_words(self) -> bool:
        """Whether each word of a sentence is labelled."""
        return self.label == "token"

    @property
    def of_tokens(self) -> bool:
        """Whether tokens are scored, rather than a whole text or pair."""
        return self.label in ("token", "span")


_OF_TEXTS = "ForSequenceClassification"

KINDS: Mapping[str, Kind] = {
    "classification": Kind("class", _OF_TEXTS, "single_label_classification", has_classes=True),
    "multi_label": Kind("classes", _OF_TEXTS, "multi_label_classification", has_classes=True),
    "regression": Kind("value", _OF_TEXTS, "regression", output="value"),
    "question_answering": Kind("span", "ForQuestionAnswering"),
    "ranking": Kind("relevance", _OF_TEXTS, "regression", output="relevance"),
    "token_classification": Kind("token", "ForTokenClassification", has_classes=True),
    "similarity": Kind("value", None),
    "retrieval": Kind("relevance", None),
}
"""Name to kind; the last two are kinds of evaluation alone: the cosine of two sentence vectors, or of a query's and of
all documents'."""


def kind_of(name: str | None) -> Kind:
    """Return the kind of a task or head; one without labels for text, masked language models and no head."""
    return KINDS.get(name or "", _NO_KIND)


_NO_KIND = Kind("none", None)


def are_made_up(classes: Sequence[str]) -> bool:
    """Whether classes have no names but those that `transformers` makes up (`LABEL_0` …), or bare numbers."""
    return any(list(classes) == [f"{prefix}{number}" for number in range(len(classes))] for prefix in ("LABEL_", ""))
