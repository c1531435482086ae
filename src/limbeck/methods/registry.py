"""The registry of methods: the package's, each in a file of its name, and the methods of plugins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from limbeck.core.kinds import KINDS
from limbeck.core.registry import PluginPoint, Registry, is_built_in
from limbeck.errors import LimbeckError, PluginError
from limbeck.methods.citation import Citation
from limbeck.methods.composition import Compose, Method
from limbeck.methods.options import MethodOptions
from limbeck.methods.pairing import LABELLED_TASKS, TEXT, Pairing, Task
from limbeck.methods.term import Term

OptionsT = TypeVar("OptionsT", bound=MethodOptions)
ComposeT = TypeVar("ComposeT", bound=Compose[Any])
ALL_TASKS: tuple[Task, ...] = (TEXT, *LABELLED_TASKS)
"""Text without labels, and the package's kinds of tasks that can be trained."""


def _problem(method: Method[Any]) -> str | None:
    """Return why recipes could not use a method; None if they can.

    A recipe has to be able to name the method without options, so all of these need defaults.
    """
    options: object = method.options
    if not (isinstance(options, type) and issubclass(options, MethodOptions)):
        return "its options are not a subclass of limbeck.methods.MethodOptions"
    if "name" in options.model_fields:
        return "an option is called 'name', the key of the method's own name in recipes; call it something else"
    try:
        options()
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        return f"its option '{place}' has no default that it accepts; give it one"
    compose: Any = method.compose
    if not callable(compose):
        return "its compose is not a function"
    unknown = [task for task in method.tasks if task != TEXT and task not in KINDS]
    if unknown or not method.tasks:
        return f"its tasks are {method.tasks!r}; choose from {', '.join(ALL_TASKS)}"
    return None


_POINT: PluginPoint[Method[Any]] = PluginPoint(
    "limbeck.methods", Method, "register_as_method(options=…)", _problem, lambda method: method.compose
)
METHODS: Registry[Method[Any]] = Registry("method", plugins=_POINT)


def usual_terms(pairing: Pairing) -> Iterator[tuple[str, Sequence[Term]]]:
    """Iterate over the methods that suit two models: the name of each, and its terms by its usual options.

    Args:
        pairing: The models, and the task of their text.
    """
    for name, method in METHODS.items():
        if not method.takes(pairing.task):
            continue
        try:
            terms = method.compose(method.options(), pairing)
        except LimbeckError:
            # The method does not suit the shapes of these models.
            continue
        yield name, terms


def read_method(document: Mapping[str, Any]) -> tuple[Method[Any], MethodOptions]:
    """Return the method and the options that the `method` of a recipe's stage names.

    Raises:
        LimbeckError: if there is no such method.
        ValidationError: if it has no such options.
    """
    method = METHODS[document["name"]]
    options = {key: value for key, value in document.items() if key != "name"}
    return method, method.options.model_validate(options)


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


def _first_paragraph(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a function's docstring, in one line."""
    docstring = inspect.getdoc(function) or ""
    paragraph, _, _ = docstring.partition("\n\n")
    return " ".join(paragraph.split())


def register_as_method(
    *,
    options: type[MethodOptions] = MethodOptions,
    name: str | None = None,
    summary: str | None = None,
    citation: Citation | None = None,
    tasks: tuple[Task, ...] = ALL_TASKS,
    replace: bool = False,
    stages: tuple[Mapping[str, Any], ...] = (),
) -> Callable[[ComposeT], ComposeT]:
    """Return a decorator that adds a method whose `compose` is the function, and returns the function as it is.

    limbeck's own methods are registered by it too.

    Args:
        options: The pydantic model of its options; by default it has none.
        name: Its name in recipes; None is the name of the function.
        summary: One sentence; None is the first paragraph of the function's docstring.
        citation: Its source, if it has one.
        tasks: The tasks it can be composed for, the most usual first.
        replace: See `register_method`.
        stages: For a method of several stages, the name and options of the method of each.

    Raises:
        PluginError: one line, if the name is taken or a field is not what recipes need.
    """

    def register(compose: ComposeT) -> ComposeT:
        """Add a method to the registry, by the arguments of `register_as_method`."""
        method_name = name if name is not None else getattr(compose, "__name__", "")
        sentence = _first_paragraph(compose) if summary is None else summary
        if not sentence:
            raise PluginError(
                f"The method '{method_name}' cannot be added: it has no summary, which lists of methods show; give "
                "its function a docstring."
            )
        method = Method[Any](
            name=method_name,
            summary=sentence,
            options=options,
            compose=compose,
            citation=citation,
            tasks=tasks,
            stages=stages,
        )
        METHODS.add(method_name, method, replace=replace, built_in=is_built_in(compose))
        return compose

    return register
