"""Scores at chance beside those of models: of a guesser, which does not read the rows that it answers.

A score tells little without that of a guesser: of rows with two even classes, a coin has half right.
"""

from limbeck.core.blocks import rounded
from limbeck.core.kinds import kind_of
from limbeck.core.studies import Column, ColumnFigure

MOST_FREQUENT_CLASS = "most frequent class"
RANDOM_ORDER = "random order"
GUESSERS = (MOST_FREQUENT_CLASS, RANDOM_ORDER)
"""Names of the guessers, as tables have them."""
ONLY_IMITATES = "A student can only imitate its teacher: look for a better one, or train it longer or on more rows."
"""The advice on a teacher that is no better than a guesser."""


def with_article(guesser: str) -> str:
    """Return the name of a guesser for a sentence."""
    return f"the {guesser}" if guesser == MOST_FREQUENT_CLASS else f"a {guesser}"


def guesser_sentence(column: Column, figure: ColumnFigure) -> str:
    """Return a sentence on the guesser beside a score of an evaluation; empty where there is none.

    Args:
        column: The column of the evaluation.
        figure: The score of a model, in percent.
    """
    guesser = guesser_of(column.metric, column.kind)
    if guesser is None or not figure.chance:
        return ""
    return f"{column.title}: {with_article(guesser)} has {rounded(figure.chance, 1)}."


def guesser_of(metric: str, kind: str | None) -> str | None:
    """Return the guesser whose score stands beside those of models; None where there is none.

    Args:
        metric: The name of the metric.
        kind: The kind of the task.
    """
    facts = kind_of(kind)
    if facts.has_queries:
        return RANDOM_ORDER
    # Other metrics of classes have no guesser that everyone knows.
    if facts.has_one_class and metric == "accuracy":
        return MOST_FREQUENT_CLASS
    return None
