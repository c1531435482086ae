"""Scores at chance beside those of models: of a guesser, which does not read the rows that it answers.

A score tells little without that of a guesser: of rows with two even classes, a coin has half right.
"""

from limbeck.core.blocks import rounded
from limbeck.core.kinds import kind_of
from limbeck.core.studies import Column, ColumnFigure
from limbeck.report.names import metric_name
from limbeck.report.reliable import is_weak

MOST_FREQUENT_CLASS = "most frequent class"
MOST_FREQUENT_TAG = "most frequent tag"
ALWAYS_POSITIVE = "always the positive class"
SAME_CLASSES = "same classes for all rows"
NO_ANSWER = "no answer"
RANDOM_ORDER = "random order"
GUESSERS = (MOST_FREQUENT_CLASS, MOST_FREQUENT_TAG, ALWAYS_POSITIVE, SAME_CLASSES, NO_ANSWER, RANDOM_ORDER)
"""Names of the guessers, as tables have them."""
_IN_SENTENCES = {
    MOST_FREQUENT_CLASS: "the most frequent class",
    MOST_FREQUENT_TAG: "the most frequent tag",
    ALWAYS_POSITIVE: "a model that always gives the positive class",
    SAME_CLASSES: "a model that gives all rows the same classes",
    NO_ANSWER: "a model that gives no answers",
    RANDOM_ORDER: "a random order",
}
_METRICS_OF_MOST_FREQUENT = ("accuracy", "micro_f1")
"""The metrics of classes by which the most frequent class is the best guess; of one class a row, they are equal."""
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
    verb = verb_of(metric)
    if lowest <= chance:
        return f"{metric} {verb} not clearly above chance ({rounded(chance, digits)}, without reading the rows)"
    share = score / 100 if percent else score
    if is_weak(share):
        return f"{metric} {verb} only {rounded(score, digits)}"
    return ""


def verb_of(figure: str) -> str:
    """Return the verb of a sentence on a score, `is` or `are`.

    Args:
        figure: The name of the score, which begins with its metric, as tables head it.
    """
    return "are" if figure.startswith(metric_name("exact_span")) else "is"


def with_article(guesser: str) -> str:
    """Return a guesser in words that fit into a sentence, such as `the most frequent class`."""
    return _IN_SENTENCES[guesser]


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
    if facts.has_answers:
        return NO_ANSWER
    if facts.of_words:
        # No entities are found by chance.
        return MOST_FREQUENT_TAG if metric == "accuracy" else None
    if facts.has_several:
        return SAME_CLASSES
    if not facts.has_one_class:
        return None
    if metric in facts.metrics_of_class:
        return ALWAYS_POSITIVE
    # Other metrics of classes have no guesser that everyone knows.
    return MOST_FREQUENT_CLASS if metric in _METRICS_OF_MOST_FREQUENT else None
