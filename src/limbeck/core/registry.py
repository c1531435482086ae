"""A typed registry of named items, which refuses collisions and suggests names; some are open to plugins.

Plugins are code from outside the package: plain files that the user names, and entry points of installed distributions.
Nothing is taken from a recipe or a model's folder: a file runs because its name was given on the command line
(`--plugin FILE`) or in the environment (`LIMBECK_PLUGINS`), an entry point because its distribution was installed. Both
are read when a registry is first asked for something, in every process.
"""

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from threading import RLock
from typing import Generic, TypeVar, cast

from limbeck.errors import LimbeckError, PluginError, RecipeError, suggestion

VARIABLE = "LIMBECK_PLUGINS"
"""The environment variable with the files' paths, separated as those of `PATH` are."""

_files: dict[str, str | PluginError] = {}
"""The files that were run, by their hash, or why one could not be: a second try would register its first half twice."""
_distributions: dict[str, str] = {}
"""Name to version, of those whose entry points were loaded."""
_lock = RLock()


def use_plugins(paths: Iterable[str | Path]) -> None:
    """Name plugin files for this process and those that it starts; they run when a registry is first read.

    Args:
        paths: Python files. One that is named already is not named twice.

    Raises:
        PluginError: for a path that is no Python file.
    """
    named = _named()
    for path in paths:
        file = Path(path).expanduser().absolute()
        if not file.is_file():
            problem = "is a folder" if file.is_dir() else "does not exist"
            raise PluginError(f"The plugin '{path}' {problem}; give the path of a Python file.")
        if file.suffix != ".py":
            raise PluginError(f"The plugin '{path}' is not a Python file; give one that ends in .py.")
        if os.pathsep in str(file):
            raise PluginError(
                f"The plugin '{path}' has a '{os.pathsep}' in its path, which is the separator between files; move it."
            )
        named.append(str(file))
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(named))


def load_plugins() -> None:
    """Run the plugin files that are named, each once in a process.

    Raises:
        PluginError: one line with the file, the line in it and what went wrong; the same at every call.
    """
    with _lock:
        for name in _named():
            if name not in _files:
                # A file that reads a registry while it runs comes here again.
                _files[name] = ""
                _files[name] = _run(Path(name))
            failure = _files[name]
            if isinstance(failure, PluginError):
                raise failure


def note_distribution(entry_point: EntryPoint) -> None:
    """Note for records that this process has something of the entry point's distribution."""
    if entry_point.dist is not None:
        _distributions[entry_point.dist.name] = entry_point.dist.version


def load_entry_point(entry_point: EntryPoint) -> object:
    """Return the object that an entry point names, and note its distribution.

    Raises:
        PluginError: if its module cannot be imported, or does not have the object.
    """
    try:
        loaded: object = entry_point.load()
    except Exception as error:
        reason = f"{_reason(error)}; repair the distribution, or uninstall it."
        raise PluginError(f"{describe_entry_point(entry_point)} cannot be loaded: {reason}") from error
    note_distribution(entry_point)
    return loaded


def hint_of_plugins(kind: str) -> str:
    """Return the end of a message on an unknown name: how items of one's own are added.

    Args:
        kind: What is looked for, such as `"method"`.
    """
    return f" Register your own {kind}s with --plugin FILE, or import that file."


def describe_entry_point(entry_point: EntryPoint) -> str:
    """Name an entry point and its distribution for a message, for example `The limbeck.methods 'mine' of mine 1.0`."""
    origin = entry_point.dist
    of = f" of the distribution {origin.name} {origin.version}" if origin is not None else ""
    return f"The entry point '{entry_point.name}' ({entry_point.group}){of}"


def plugins_in_use() -> list[dict[str, str]]:
    """Return the plugins of this process, for a run's record: files by their hash, distributions by version."""
    files = [{"file": name, "sha256": digest} for name, digest in _files.items() if isinstance(digest, str)]
    distributions = [{"distribution": name, "version": version} for name, version in _distributions.items()]
    return files + distributions


def _named() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def _run(path: Path) -> str | PluginError:
    """Run a file as a separate module; returns its hash, or why it could not be run."""
    name = f"limbeck_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return PluginError(f"The plugin '{path}' ({VARIABLE}) is not a Python file; give one that ends in .py.")
    module = util.module_from_spec(spec)
    # Where pydantic and dataclasses look up the names in annotations.
    sys.modules[name] = module
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        failure = PluginError(f"The plugin '{path}' cannot be loaded{_line(path, error)}: {_reason(error)}.")
        failure.__cause__ = error
        return failure
    return digest


def _line(path: Path, error: Exception) -> str:
    """Where in the file it went wrong, if it was there."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""


def _reason(error: Exception) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    message = message.rstrip(".")
    if isinstance(error, LimbeckError):
        return message
    return f"{type(error).__name__}: {message}"


T = TypeVar("T")


@dataclass(frozen=True)
class PluginPoint(Generic[T]):
    """How a registry takes items from outside the package.

    Args:
        group: The group of entry points that name items.
        expected: Class of the items, which have a name.
        decorator: What turns a function into such an item, for messages.
        problem: Says why an item cannot be added, as the end of a sentence; None where it can.
        code: The code of an item: the decorators of a package may register what its entry points name.
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
        kind: What is held, as it appears in messages, for example `"method"`.
        error: The exception raised for an unknown name.
        plugins: How items come from outside; None keeps the registry closed.
        source: Gives the package's own names and items when the registry is first read, for those that stand in files.
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

    def add(self, name: str, item: object, *, replace: bool = False, own: bool = False) -> T:
        """Add an item under `name`, checked by the registry's plugin point.

        Args:
            name: Free, unless `replace` is given.
            item: What the registry's plugin point accepts.
            replace: Take the place of an item that came from outside too, as when a notebook's cell runs again.
            own: It is the package's, and not from outside: nothing replaces it.

        Raises:
            PluginError: if the registry is closed, the item is of another kind, or the name is taken.
        """
        if self._plugins is None:
            raise PluginError(f"Nothing can be added to the registry of {self.kind}s.")
        if own and name not in self._items:
            return self.register(name, cast(T, item))  # Tests check the package's own, which would take time here.
        checked = self._plugins.check(self.kind, name, item)
        # The package's own names are taken, whoever reads the registry first.
        self._register_source()
        self._discover()
        held = self._items.get(name)
        if isinstance(held, EntryPoint) and _package(held.module) == _package_of(self._plugins.code(checked)):
            note_distribution(held)
        elif held is not None and not (replace and name in self._outside):
            raise PluginError(f"The {self.kind} '{name}' already exists; give yours a different name.")
        self._items[name] = checked
        self._outside.add(name)
        return checked

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
        item = self._items[name]
        if not isinstance(item, EntryPoint):
            return item
        assert self._plugins is not None
        loaded = load_entry_point(item)
        registered = self._items[name]  # By a decorator, as the module was imported.
        if not isinstance(registered, EntryPoint):
            return registered
        try:
            checked = self._plugins.check(self.kind, name, loaded)
        except PluginError as error:
            raise PluginError(f"{describe_entry_point(item)}: {error}") from None
        self._items[name] = checked
        return checked

    def _register_source(self) -> None:
        """Register the package's own items that its source gives, once."""
        if self._source is None:
            return
        source = self._source
        self._source = None
        for name, item in source():
            self.register(name, item)

    def _read_plugins(self) -> None:
        """Take up what is in files or outside, before the first answer."""
        self._register_source()
        if self._plugins is not None:
            self._discover()
            load_plugins()

    def _discover(self) -> None:
        """Note the names that installed distributions add; importing them waits until they are asked for."""
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
        self._outside |= set(discovered)
        self._is_discovered = True


def is_own(code: object) -> bool:
    """Whether a function or class is limbeck's, and not from outside."""
    return _package_of(code) == _package(__name__)


def _package(module: str) -> str:
    return module.partition(".")[0]


def _package_of(code: object) -> str | None:
    module = getattr(code, "__module__", None)
    return _package(module) if isinstance(module, str) else None
