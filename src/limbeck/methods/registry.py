"""The registry of methods; a method's name equals its file's name, or is added from outside the package."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from limbeck.core.registry import PluginPoint, Registry
from limbeck.errors import PluginError
from limbeck.methods.bert_emd import BERT_EMD
from limbeck.methods.bert_pkd import BERT_PKD
from limbeck.methods.composition import Citation, Compose, Method, MethodOptions, Task
from limbeck.methods.direct_minilm import DIRECT_MINILM
from limbeck.methods.distilbert import DISTILBERT
from limbeck.methods.elm import ELM
from limbeck.methods.hidden_states import HIDDEN_STATES
from limbeck.methods.minilm import MINILM
from limbeck.methods.minilmv2 import MINILMV2
from limbeck.methods.mlkd_bert import MLKD_BERT
from limbeck.methods.mlm import MLM
from limbeck.methods.output_distribution import OUTPUT_DISTRIBUTION
from limbeck.methods.sentence_embedding import SENTENCE_EMBEDDING
from limbeck.methods.tinybert import TINYBERT

OptionsT = TypeVar("OptionsT", bound=MethodOptions)
ComposeT = TypeVar("ComposeT", bound=Compose[Any])
ALL_TASKS: tuple[Task, ...] = get_args(Task)


def _check_method(name: str, item: object) -> Method[Any]:
    """Refuse a method from outside that a recipe could not name, or whose options it could not leave out."""
    if not isinstance(item, Method):
        hint = " For a function, put @register_as_method(options=…) above it." if callable(item) else ""
        raise PluginError(f"'{name}' is a {type(item).__name__}, no limbeck.methods.Method.{hint}")
    problem = _problem(name, item)
    if problem is not None:
        raise PluginError(f"The method '{name}' cannot be added: {problem}.")
    return item


def _problem(name: str, method: Method[Any]) -> str | None:
    if method.name != name:
        return f"its own name is '{method.name}'; give it the same in both places"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return "a name is of small letters, digits and _, a letter first"
    options: object = method.options
    if not (isinstance(options, type) and issubclass(options, MethodOptions)):
        return "its options are no subclass of limbeck.methods.MethodOptions"
    if "name" in options.model_fields:
        return "an option is called 'name', which recipes call the method by; call it something else"
    try:
        options()
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        return f"its option '{place}' has no default that it accepts; give it one"
    compose: Any = method.compose
    if not callable(compose):
        return "its compose is no function"
    unknown = [task for task in method.tasks if task not in get_args(Task)]
    if unknown or not method.tasks:
        return f"its tasks are {method.tasks!r}; give some of {', '.join(get_args(Task))}"
    return None


METHODS: Registry[Method[Any]] = Registry(
    "method", plugins=PluginPoint("limbeck.methods", _check_method, lambda method: method.compose)
)
for _method in (
    MINILM,
    MINILMV2,
    DIRECT_MINILM,
    HIDDEN_STATES,
    OUTPUT_DISTRIBUTION,
    DISTILBERT,
    TINYBERT,
    ELM,
    MLKD_BERT,
    BERT_PKD,
    BERT_EMD,
    SENTENCE_EMBEDDING,
    MLM,
):
    METHODS.register(_method.name, _method)


def register_method(method: Method[OptionsT], *, replace: bool = False) -> Method[OptionsT]:
    """Add a method from outside the package, so that recipes, commands and the schema know it by its name.

    Call it where the module is run, not under a main guard: worker processes run the module too.

    Args:
        method: Its options all have defaults.
        replace: Take the place of one that was registered before, as when a notebook's cell runs again; the package's
            own are never replaced.

    Returns:
        The method.

    Raises:
        PluginError: one line, if the name is taken or a field is not what recipes need.
    """
    METHODS.add(getattr(method, "name", ""), method, replace=replace)
    return method


def register_as_method(
    *,
    options: type[MethodOptions] = MethodOptions,
    name: str | None = None,
    summary: str | None = None,
    citation: Citation | None = None,
    tasks: tuple[Task, ...] = ALL_TASKS,
    replace: bool = False,
) -> Callable[[ComposeT], ComposeT]:
    """Return a decorator that adds a method whose `compose` is the function, and returns the function as it is.

    Args:
        options: The pydantic model of its options; by default it has none.
        name: As recipes write it; None is the function's own.
        summary: One sentence; None is the first paragraph of the function's docstring.
        citation: Its source, if it has one.
        tasks: The tasks it can be composed for, the most usual first.
        replace: As `register_method`'s.

    Raises:
        PluginError: one line, if the name is taken or a field is not what recipes need.
    """

    def register(compose: ComposeT) -> ComposeT:
        own = name if name is not None else getattr(compose, "__name__", "")
        said = summary if summary is not None else " ".join((inspect.getdoc(compose) or "").split("\n\n")[0].split())
        if not said:
            raise PluginError(f"The method '{own}' cannot be added: it has no summary; give its function a docstring.")
        register_method(Method[Any](own, said, options, compose, citation, tasks), replace=replace)
        return compose

    return register
