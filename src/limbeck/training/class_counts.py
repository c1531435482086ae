"""Classes of a stage's rows: counted, weighed, and described where they are uneven."""

from limbeck.core.kinds import kind_of
from limbeck.corpus import LabelledSettings
from limbeck.corpus.rows.classes import ClassCounts, balance, count_classes, labels_of
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.rows import AnyCorpus


def count_labels(stage: StagePlan, corpus: AnyCorpus) -> ClassCounts | None:
    """Count the rows of each class that a stage trains on; None where its corpus has no classes, or no labels."""
    kind = kind_of(stage.pairing.task)
    if not stage.pairing.labelled:
        return None
    if not kind.has_classes or not isinstance(stage.corpus, LabelledSettings):
        return None
    return count_classes(labels_of(corpus.train), stage.corpus.labels, kind)


def weigh_classes(stage: StagePlan, corpus: AnyCorpus) -> StagePlan:
    """Weigh the classes of a stage's hard labels as its recipe asks.

    Raises:
        CorpusError: for balanced weights of a class that no row has.
    """
    if stage.class_weights is None:
        return stage
    counts = count_labels(stage, corpus)
    if counts is None:
        return stage
    return stage.with_class_weights(balance(stage.class_weights, counts))


def describe_classes(stage: StagePlan, corpus: AnyCorpus) -> str | None:
    """Describe in one line how uneven the classes of a stage's rows are; None where they are even, or there are none.

    Raises:
        CorpusError: if all rows are of one class, and hard labels are learned.
    """
    counts = count_labels(stage, corpus)
    if counts is None:
        return None
    if not counts.has_one:
        return counts.describe_rare()
    # All rows have the same class or classes, so hard labels teach nothing.
    if stage.learns_classes:
        raise stage.one_class_error(counts)
    return f"{counts.describe_one()}; only the teacher's scores are learned."
