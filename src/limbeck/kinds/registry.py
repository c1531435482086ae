"""`KINDS`, the registry of kinds of tasks, and the decorator by which kinds are added.

A *kind* (classification, ranking, …) says how rows are read, trained on and scored. It has two parts: its class, a
`Kind`, and its *facts* (`KindFacts`: what a label is, which head and metrics it has). The facts stand in a table of
their own, `limbeck.core.kinds.KINDS`, which is read without importing torch.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TypeVar

from limbeck.core import kinds as facts_table
from limbeck.core.kinds import KindFacts
from limbeck.core.registry import PluginPoint, Registry, is_built_in
from limbeck.errors import PluginError
from limbeck.kinds.kind import Kind

K = TypeVar("K", bound=Kind)


def _problem(kind: Kind) -> str | None:
    """Return the reason for which a kind cannot be added, as the end of a sentence; None where it can."""
    if not kind.facts.metrics:
        return "it has no facts that name its metrics; give register_as_kind its facts"
    missing = [name for name in kind.facts.metrics if name not in kind.metrics]
    if missing:
        return f"its facts name the metric '{missing[0]}', which it does not have"
    return None


def _import_own() -> Iterable[tuple[str, Kind]]:
    """Import all files of this package, whose decorators register limbeck's own kinds.

    A registry's `source` may return further items to register; here there are none.
    """
    for module in iter_modules([str(Path(__file__).parent)]):
        import_module(f"limbeck.kinds.{module.name}")
    return ()


KINDS: Registry[Kind] = Registry(
    "kind",
    plugins=PluginPoint(
        group=facts_table.ENTRY_POINTS,
        expected=Kind,
        decorator="register_as_kind()",
        problem=_problem,
        code=type,
    ),
    source=_import_own,
)
"""Name to kind."""


def register_as_kind(*, facts: KindFacts | None = None, replace: bool = False) -> Callable[[type[K]], type[K]]:
    """Return a class decorator that adds a kind of task to the registry, and returns the class unchanged.

    limbeck's own kinds are registered by it too.

    Args:
        facts: The facts of a kind from outside the package. limbeck's own kinds give none here, since theirs stand in
            `limbeck.core.kinds.KINDS` already.
        replace: Whether a kind of the same name from outside the package is replaced, as when a cell of a notebook is
            run again. limbeck's own kinds are never replaced.

    Raises:
        PluginError: if the name is taken, or the kind lacks a metric that its facts name.

    Example:
        >>> @register_as_kind(facts=KindFacts(label="class", head="ForSequenceClassification", metrics=("accuracy",)))
        ... class Grades(Classification):
        ...     name = "grades"
    """

    def register(kind_class: type[K]) -> type[K]:
        """Add the kind of a class to the registry, and its facts to the table of facts."""
        kind = kind_class()
        # The facts come first: adding a kind compares it with its facts.
        if facts is not None:
            try:
                facts_table.KINDS.add(kind.name, facts)
            except ValueError as error:
                raise PluginError(f"The kind '{kind.name}' cannot be added: {error}.") from None
        # A kind of limbeck's own code (built in) cannot be replaced, so its name stays taken.
        KINDS.add(kind.name, kind, replace=replace, built_in=is_built_in(kind_class))
        return kind_class

    return register
