"""A typed registry: names to things, refusing collisions and suggesting on a miss; open to plugins where it says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from limbeck.errors import LimbeckError, PluginError, RecipeError, suggestion
from limbeck.plugins import describe_entry_point, load_entry_point, load_plugins, note_distribution

T = TypeVar("T")


@dataclass(frozen=True)
class PluginPoint(Generic[T]):
    """How a registry takes items from outside the package.

    Args:
        group: The group of entry points that name items.
        check: Returns a name's item as it is, or raises PluginError saying what is wrong with it.
        code: What of an item is its code, by default its class: the decorators of a package may register what its entry
            points name.
    """

    group: str
    check: Callable[[str, object], T]
    code: Callable[[T], object] = type


class Registry(Generic[T]):
    """Holds named items of one kind: the package's in the order of registration, then those from outside.

    Installed distributions add items by entry points, each imported when it is asked for; the user's plugin files add
    theirs as they run, before the registry is first read.

    Args:
        kind: What is held, as it appears in messages, for example `"method"`.
        error: The exception raised for an unknown name.
        plugins: How items come from outside; None keeps the registry closed.
    """

    def __init__(
        self, kind: str, error: type[LimbeckError] = RecipeError, plugins: PluginPoint[T] | None = None
    ) -> None:
        self.kind = kind
        self._error = error
        self._plugins = plugins
        self._items: dict[str, T | EntryPoint] = {}
        self._outside: set[str] = set()
        self._is_discovered = plugins is None

    def register(self, name: str, item: T) -> T:
        """Add an item of the package under `name`.

        Raises:
            ValueError: if the name is taken; a registration never silently replaces another.
        """
        if name in self._items:
            raise ValueError(f"{self.kind} '{name}' is registered twice")
        self._items[name] = item
        return item

    def add(self, name: str, item: object, *, replace: bool = False) -> T:
        """Add an item from outside the package under `name`.

        Args:
            name: Free, unless `replace` is given.
            item: What the registry's plugin point accepts.
            replace: Take the place of an item that came from outside too, as when a notebook's cell runs again.

        Raises:
            PluginError: if the registry is closed, the item is not what it holds, or the name is taken.
        """
        if self._plugins is None:
            raise PluginError(f"Nothing can be added to the registry of {self.kind}s.")
        checked = self._plugins.check(name, item)
        self._discover()
        held = self._items.get(name)
        if isinstance(held, EntryPoint) and _package(held.module) == _package_of(self._plugins.code(checked)):
            note_distribution(held)
        elif held is not None and not (replace and name in self._outside):
            raise PluginError(f"The {self.kind} '{name}' already exists; give yours another name.")
        self._items[name] = checked
        self._outside.add(name)
        return checked

    def __getitem__(self, name: str) -> T:
        self._read_plugins()
        if name not in self._items:
            hint = "" if self._plugins is None else f" Your own {self.kind}s come with --plugin FILE."
            raise self._error(f"Unknown {self.kind} '{name}'.{suggestion(name, self._items)}{hint}")
        return self._loaded(name)

    def __contains__(self, name: object) -> bool:
        self._read_plugins()
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        self._read_plugins()
        return iter(list(self._items))

    def __len__(self) -> int:
        self._read_plugins()
        return len(self._items)

    def items(self) -> Iterator[tuple[str, T]]:
        """Iterate over (name, item)."""
        for name in self:
            yield name, self._loaded(name)

    def _loaded(self, name: str) -> T:
        item = self._items[name]
        if not isinstance(item, EntryPoint):
            return item
        assert self._plugins is not None
        found = load_entry_point(item)
        registered = self._items[name]  # By a decorator, as the module was imported.
        if not isinstance(registered, EntryPoint):
            return registered
        try:
            checked = self._plugins.check(name, found)
        except PluginError as error:
            raise PluginError(f"{describe_entry_point(item)}: {error}") from None
        self._items[name] = checked
        return checked

    def _read_plugins(self) -> None:
        """Take up what is outside, before the first answer."""
        if self._plugins is not None:
            self._discover()
            load_plugins()

    def _discover(self) -> None:
        """Note the names that installed distributions add; importing them waits until they are asked for."""
        if self._is_discovered or self._plugins is None:
            return
        found: dict[str, EntryPoint] = {}
        for entry_point in sorted(entry_points(group=self._plugins.group), key=lambda one: one.name):
            if entry_point.name in self._items or entry_point.name in found:
                raise PluginError(
                    f"{describe_entry_point(entry_point)} adds a {self.kind} that there is already; uninstall one of "
                    "the two, or give it another name."
                )
            found[entry_point.name] = entry_point
        self._items |= found
        self._outside |= set(found)
        self._is_discovered = True


def _package(module: str) -> str:
    return module.partition(".")[0]


def _package_of(code: object) -> str | None:
    module = getattr(code, "__module__", None)
    return _package(module) if isinstance(module, str) else None
