"""Classes of a stage's rows: counted, weighed, and described where they are uneven."""

from limbeck.core.kinds import kind_of
from limbeck.corpus import LabelledSettings
from limbeck.corpus.rows.classes import ClassCounts, balance, count_classes, labels_of
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.rows import AnyCorpus


def count_labels(stage: StagePlan, corpus: AnyCorpus) -> ClassCounts | None:
    """Count the rows of each class that a stage trains on; None where its corpus has no classes."""
    kind = kind_of(stage.pairing.task)
    if not kind.has_classes or not isinstance(stage.corpus, LabelledSettings):
        return None
    return count_classes(labels_of(corpus.train), stage.corpus.labels, kind.label)


def weigh_classes(stage: StagePlan, corpus: AnyCorpus) -> StagePlan:
    """Weigh the classes of a stage's hard labels as its recipe asks.

    Raises:
        CorpusError: for balanced weights of a class that no row has.
    """
    counts = count_labels(stage, corpus) if stage.class_weights is not None else None
    if stage.class_weights is None or counts is None:
        return stage
    return stage.with_class_weights(balance(stage.class_weights, counts))


def describe_classes(stage: StagePlan, corpus: AnyCorpus) -> str | None:
    """Say in one line where the classes of a stage's rows are uneven; None where they are not.

    Raises:
        CorpusError: if the rows are all alike, and hard labels are learned.
    """
    counts = count_labels(stage, corpus)
    if counts is None or not counts.has_one:
        return None if counts is None else counts.describe_rare()
    if stage.learns_classes:
        raise stage.one_class_error(counts)
    return f"{counts.describe_one()}; only the teacher's scores are learned."
