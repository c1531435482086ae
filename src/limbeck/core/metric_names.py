"""Names of metrics in task files and recipes, and the *positive* class, which a metric such as `f1` is of."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from limbeck.core.fields import Name
from limbeck.core.kinds import are_made_up
from limbeck.errors import suggestion

WAYS_OUT_OF_F1 = "name that class (positive: NAME), or take macro_f1, micro_f1 or weighted_f1"
"""What to do about the metric `f1` without a class."""
_SHOWN_LETTERS = 80
"""Most characters of foreign text in a message."""
_STANDARD_NAMES: Mapping[str, str] = {
    "f1_macro": "macro_f1",
    "f1_micro": "micro_f1",
    "f1_weighted": "weighted_f1",
}
"""Names of scikit-learn's scorers, and limbeck's names of the same metrics."""


def standard_metric(name: str) -> str:
    """Return limbeck's name of a metric, which scikit-learn may call otherwise."""
    return _STANDARD_NAMES.get(name, name)


def _standard_metrics(value: Any) -> Any:
    """Return one name or several as a list of standard names; anything else as it is."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return value
    return list(dict.fromkeys(map(standard_metric, names)))


def class_as_text(value: Any, what: str) -> Any:
    """Return a class of YAML as text: a number is taken, a truth value and other values are refused.

    Args:
        value: The class.
        what: What it is, for the message.
    """
    # YAML reads 0 as a number and no as a truth value, which Python counts as a number too.
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError(
            f"the {what} {value!r} is not text, because YAML reads it as another value: put it in quotation marks"
        )
    return str(value)


def _positive_as_text(value: Any) -> Any:
    return None if value is None else class_as_text(value, "positive class")


MetricNames = Annotated[
    tuple[Name, ...], BeforeValidator(_standard_metrics, json_schema_input_type=str | tuple[str, ...])
]
"""Several metrics, or one alone, under their standard names."""
PositiveClass = Annotated[Name | None, BeforeValidator(_positive_as_text, json_schema_input_type=str | int | None)]
"""The class that a metric of one class is of."""


def problems_of_metrics(
    metrics: Sequence[str], positive: str | None, *, known: Sequence[str], of_class: Sequence[str], kind: str
) -> Iterator[str]:
    """Yield the problems with the metrics that a task names.

    Args:
        metrics: The metrics; empty where the task names none.
        positive: The positive class; None without one.
        known: The metrics that can score the task.
        of_class: Those of the known metrics that score one class alone, the positive one, such as f1.
        kind: What the user calls the kind of the task.
    """
    for name in metrics:
        if name not in known:
            yield f"{kind} has no metric '{name}'.{suggestion(name, known)}"

    named_of_class = [name for name in metrics if name in of_class]
    if named_of_class and positive is None:
        yield f"metric: {named_of_class[0]} is that of one class: {WAYS_OUT_OF_F1}"
    if positive is None:
        return
    if not of_class:
        yield f"positive is the class of a metric such as f1, which {kind} does not have: leave it out"
    elif metrics and not named_of_class:
        first = of_class[0]
        yield f"positive is the class of {first}, which is not among the metrics: add {first}, or leave out positive"


def problem_of_positive(positive: str, classes: Sequence[str]) -> str | None:
    """Return the problem with a positive class that is none of the classes; None where it is one of them."""
    if class_named(positive, classes) is not None:
        return None
    return f"positive is '{positive[:_SHOWN_LETTERS]}', which is not one of the classes.{suggestion(positive, classes)}"


def class_named(name: str, classes: Sequence[str]) -> str | None:
    """Return the class of a name; None where there is none.

    A number is the name of a class where classes have no names but numbers, or those that `transformers` makes up.
    """
    if name in classes:
        return name
    if are_made_up(classes) and name.isdecimal() and int(name) < len(classes):
        return classes[int(name)]
    return None
