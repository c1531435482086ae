"""Scores at chance beside those of models: of a guesser, which does not read the rows that it answers.

A score tells little without that of a guesser: of rows with two even classes, a coin has half right.
"""

from limbeck.core.blocks import rounded
from limbeck.core.kinds import kind_of
from limbeck.core.studies import Column, ColumnFigure
from limbeck.report.names import metric_name
from limbeck.report.reliable import is_weak

MOST_FREQUENT_CLASS = "most frequent class"
RANDOM_ORDER = "random order"
GUESSERS = (MOST_FREQUENT_CLASS, RANDOM_ORDER)
"""Names of the guessers, as tables have them."""
ONLY_IMITATES = "A student can only imitate its teacher: look for a better one, or train it longer or on more rows."
"""The advice on a weak teacher."""


def describe_weakness(metric: str, score: float, *, lowest: float, chance: float, percent: bool = False) -> str:
    """A clause on the weak score of a teacher, such as `answer F1 is only 0.075`; empty for a score that is not weak.

    Args:
        metric: The metric, as tables head it.
        score: The score.
        lowest: The lower end of the interval of the score, or the score itself where it has no interval.
        chance: The score of a guesser.
        percent: Whether the three numbers are percentages, which have one decimal. Else they have three.
    """
    digits = 1 if percent else 3
    verb = "are" if metric == metric_name("exact_span") else "is"
    if lowest <= chance:
        return f"{metric} {verb} not clearly above chance ({rounded(chance, digits)}, without reading the rows)"
    share = score / 100 if percent else score
    if is_weak(share):
        return f"{metric} {verb} only {rounded(score, digits)}"
    return ""


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
