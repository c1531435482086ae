"""`KINDS`, the registry of kinds of tasks, and the decorator by which kinds are added."""

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TypeVar

from limbeck.core import kinds as facts_table
from limbeck.core.kinds import KindFacts
from limbeck.core.registry import PluginPoint, Registry, is_own
from limbeck.errors import PluginError
from limbeck.kinds.kind import Kind

K = TypeVar("K", bound=Kind)


def _problem(kind: Kind) -> str | None:
    """Return why a kind cannot be added, as the end of a sentence."""
    if not kind.facts.metrics:
        return "it has no facts that name its metrics; give register_as_kind its facts"
    missing = [name for name in kind.facts.metrics if name not in kind.metrics]
    if missing:
        return f"its facts name the metric '{missing[0]}', which it does not have"
    return None


def _import_own() -> Iterable[tuple[str, Kind]]:
    """Import the files of this package: each kind is registered by its decorator as its file is read."""
    for module in iter_modules([str(Path(__file__).parent)]):
        import_module(f"limbeck.kinds.{module.name}")
    return ()


KINDS: Registry[Kind] = Registry(
    "kind",
    plugins=PluginPoint(facts_table.ENTRY_POINTS, Kind, "register_as_kind()", _problem, type),
    source=_import_own,
)
"""Name to kind."""


def register_as_kind(*, facts: KindFacts | None = None, replace: bool = False) -> Callable[[type[K]], type[K]]:
    """Return a decorator that adds a kind of task, and returns its class as it is.

    limbeck's own kinds are registered by it too.

    Args:
        facts: The facts of a kind from outside the package; the package's stand in `limbeck.core.kinds.KINDS`.
        replace: Take the place of a kind that was registered before, as when a notebook's cell runs again; the
            package's own are never replaced.

    Raises:
        PluginError: if the name is taken, or the kind lacks a metric that its facts name.

    Example:
        >>> @register_as_kind(facts=KindFacts(label="class", head="ForSequenceClassification", metrics=("accuracy",)))
        ... class Grades(Classification):
        ...     name = "grades"
    """

    def register(kind_class: type[K]) -> type[K]:
        kind = kind_class()
        if facts is not None:
            try:
                facts_table.KINDS.add(kind.name, facts)
            except ValueError as error:
                raise PluginError(f"The kind '{kind.name}' cannot be added: {error}.") from None
        KINDS.add(kind.name, kind, replace=replace, own=is_own(kind_class))
        return kind_class

    return register
