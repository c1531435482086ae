"""A typed registry of named items, such as methods or objectives, which refuses collisions and suggests names.

A registry may be open to *plugins*: items from outside the package. They come from files that the user names
(`--plugin`), whose decorators call `add` as the file runs, or from installed distributions, whose *entry points* name
items. An entry point is kept in place of its item until somebody asks for the item.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from limbeck.core.plugins import (
    describe_entry_point,
    hint_of_plugins,
    load_entry_point,
    load_plugins,
    note_distribution,
)
from limbeck.errors import LimbeckError, PluginError, RecipeError, suggestion

T = TypeVar("T")


@dataclass(frozen=True)
class PluginPoint(Generic[T]):
    """The rules by which a registry takes items from outside the package.

    Args:
        group: The group of entry points that name items.
        expected: Class of the items. They have an attribute `name`.
        decorator: Name of the decorator that turns a function into an item, for messages.
        problem: Returns the reason why an item cannot be added, as the end of a sentence; None where it can.
        code: Returns the function or class behind an item, whose module tells which package the item is from.
        separators: Characters between the words of a name, beside letters and digits.
    """

    group: str
    expected: type[T]
    decorator: str
    problem: Callable[[T], str | None]
    code: Callable[[T], object]
    separators: str = "_"

    def check(self, kind: str, name: str, item: object) -> T:
        """Check an item and return it.

        Raises:
            PluginError: for an item of another class, of another name, or with a problem of its own.
        """
        if not isinstance(item, self.expected):
            hint = f" For a function, put @{self.decorator} above it." if callable(item) else ""
            expected = f"{self.expected.__module__}.{self.expected.__name__}"
            raise PluginError(f"'{name}' is a {type(item).__name__}, not {expected}.{hint}")
        item_name: object = getattr(item, "name", None)
        problem: str | None = None
        if item_name != name:
            problem = f"its own name is '{item_name}'; use the same name in both places"
        elif not re.fullmatch(f"[a-z][a-z0-9{self.separators}]*", name):
            allowed = " and ".join(self.separators)
            problem = f"a name consists of lower-case letters, digits and {allowed}, and starts with a letter"
        else:
            problem = self.problem(item)
        if problem is not None:
            raise PluginError(f"The {kind} '{name}' cannot be added: {problem}.")
        return item


class Registry(Generic[T]):
    """Holds named items of one kind: the package's in the order of registration, then those from outside.

    Installed distributions add items by entry points, each imported when it is asked for; the user's plugin files add
    theirs as they run, before the registry is first read.

    Args:
        kind: The noun for an item in messages, for example `"method"`.
        error: The exception raised for an unknown name.
        plugins: The rules for items from outside; None keeps the registry closed.
        source: Returns names and items of the package that are in data files. It is called when the registry is first
            read.
    """

    def __init__(
        self,
        kind: str,
        error: type[LimbeckError] = RecipeError,
        plugins: PluginPoint[T] | None = None,
        source: Callable[[], Iterable[tuple[str, T]]] | None = None,
    ) -> None:
        self.kind = kind
        self._source = source
        self._error = error
        self._plugins = plugins
        self._items: dict[str, T | EntryPoint] = {}
        # Names of the items from outside the package.
        self._plugin_names: set[str] = set()
        # Whether the entry points of installed distributions were looked up; a closed registry takes none.
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

    def add(self, name: str, item: object, *, replace: bool = False, built_in: bool = False) -> T:
        """Add an item under `name`; one from outside the package is checked by the plugin point first.

        Args:
            name: A free name, or with `replace` that of an item from outside the package.
            item: The item.
            replace: Replace an item from outside the package that has this name, as when a notebook's cell runs again.
            built_in: The item is the package's, so that no plugin may ever replace it. Tests check these items.

        Raises:
            PluginError: if the registry is closed, the item is of another kind, or the name is taken.
        """
        if self._plugins is None:
            raise PluginError(
                f"A {self.kind} cannot be added from outside: limbeck's registry of {self.kind}s is closed."
            )
        # A built-in item whose name is taken is refused below, as an item from outside is.
        if built_in and name not in self._items:
            return self.register(name, cast(T, item))
        checked = self._plugins.check(self.kind, name, item)
        package = _package_of(self._plugins.code(checked))
        self._check_is_free(name, package, replace=replace)
        self._items[name] = checked
        self._plugin_names.add(name)
        return checked

    def _check_is_free(self, name: str, package: str | None, *, replace: bool) -> None:
        """Refuse a name that another item has, unless the new item may take its place.

        Args:
            name: The name.
            package: The top-level package of the code of the item that is to be added; None if it is not known.
            replace: Whether the item may replace one from outside of limbeck.

        Raises:
            PluginError: if the name is taken.
        """
        # The names in data files and those of installed distributions are read only now that one is compared with them.
        self._register_source()
        self._discover()
        present = self._items.get(name)
        if present is None:
            return
        if isinstance(present, EntryPoint) and _package(present.module) == package:
            # The name is taken by the entry point of this very item: somebody imported its distribution, whose
            # decorator now adds it, before the entry point was loaded. The item takes the place of its entry point,
            # so its distribution is noted for records.
            note_distribution(present)
            return
        is_from_outside = name in self._plugin_names
        if replace and is_from_outside:
            return
        raise PluginError(f"The {self.kind} '{name}' already exists; give yours a different name.")

    def __getitem__(self, name: str) -> T:
        self._read_plugins()
        if name not in self._items:
            hint = "" if self._plugins is None else hint_of_plugins(self.kind)
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
        """Return an item; that of a distribution is imported when it is first asked for.

        Raises:
            PluginError: for one that cannot be imported, or is no item of this registry.
        """
        item = self._items[name]
        if not isinstance(item, EntryPoint):
            return item
        assert self._plugins is not None
        loaded = load_entry_point(item)
        # The import may have run a decorator that registers the item itself, in place of its entry point.
        registered = self._items[name]
        if not isinstance(registered, EntryPoint):
            return registered
        try:
            checked = self._plugins.check(self.kind, name, loaded)
        except PluginError as error:
            raise PluginError(f"{describe_entry_point(item)}: {error}") from None
        self._items[name] = checked
        return checked

    def _register_source(self) -> None:
        """Register the items of the package that are in data files, once."""
        if self._source is None:
            return
        # Set to None first, so that a source that asks this registry for something is not called again.
        source = self._source
        self._source = None
        for name, item in source():
            self.register(name, item)

    def _read_plugins(self) -> None:
        """Make all names known before the registry answers: of data files, distributions and plugin files."""
        self._register_source()
        if self._plugins is not None:
            self._discover()
            load_plugins()

    def _discover(self) -> None:
        """Put the entry points of installed distributions among the items, once; none of them is imported here."""
        if self._is_discovered or self._plugins is None:
            return
        discovered: dict[str, EntryPoint] = {}
        for entry_point in sorted(entry_points(group=self._plugins.group), key=lambda point: point.name):
            if entry_point.name in self._items or entry_point.name in discovered:
                raise PluginError(
                    f"{describe_entry_point(entry_point)} adds a {self.kind} that already exists; uninstall one of "
                    "the two, or give it another name."
                )
            discovered[entry_point.name] = entry_point
        self._items |= discovered
        self._plugin_names |= set(discovered)
        self._is_discovered = True


def is_built_in(code: object) -> bool:
    """Whether a function or class is limbeck's, and not from outside the package."""
    return _package_of(code) == _package(__name__)


def _package(module: str) -> str:
    """The package of a module: `limbeck` of `limbeck.core.registry`."""
    package, _, _ = module.partition(".")
    return package


def _package_of(code: object) -> str | None:
    """The package of a function or a class, or None where it does not name its module."""
    module = getattr(code, "__module__", None)
    if not isinstance(module, str):
        return None
    return _package(module)
