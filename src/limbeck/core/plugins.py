"""Plugins: code from outside the package, in plain files that the user names and in installed distributions.

Nothing is taken from a recipe or a model's folder: a file runs because its name was given on the command line
(`--plugin FILE`) or in the environment (`LIMBECK_PLUGINS`), an entry point because its distribution was installed. Both
are read when a registry is first asked for something, in every process.
"""

import hashlib
import os
import sys
import traceback
from collections.abc import Iterable
from importlib import util
from importlib.metadata import EntryPoint
from pathlib import Path
from threading import RLock

from limbeck.errors import LimbeckError, PluginError

VARIABLE = "LIMBECK_PLUGINS"
"""The environment variable with the files' paths, separated as those of `PATH` are."""

_files: dict[str, str | PluginError] = {}
"""The plugin files that were run: path to the hash of the file, or to its error if it failed.

A file that failed is not run again, since it may have registered some of its items before. While a file runs, its hash
is empty.
"""

_distributions: dict[str, str] = {}
"""Name to version of the distributions whose entry points were loaded."""

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
                f"The plugin '{path}' has a '{os.pathsep}' in its path, which separates the paths of plugins; move "
                "the file to another path."
            )
        named.append(str(file))
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(named))


def load_plugins() -> None:
    """Run the plugin files that are named, each once in a process.

    Raises:
        PluginError: one line with the file, the line in it and what went wrong; the same at every call.
    """
    # A plugin file that reads a registry calls this function again, so its thread may enter the lock twice (an RLock).
    with _lock:
        for name in _named():
            if name not in _files:
                # Noted before it runs, or the inner call would run it again. The result is its hash, or its error.
                _files[name] = ""
                _files[name] = _run(Path(name))
            hash_or_error = _files[name]
            if isinstance(hash_or_error, PluginError):
                raise hash_or_error


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
    name = f"The entry point '{entry_point.name}' ({entry_point.group})"
    if entry_point.dist is None:
        return name
    return f"{name} of the distribution {entry_point.dist.name} {entry_point.dist.version}"


def plugins_in_use() -> list[dict[str, str]]:
    """Return the plugins of this process, for a run's record: files by their hash, distributions by version."""
    files = [{"file": name, "sha256": digest} for name, digest in _files.items() if isinstance(digest, str)]
    distributions = [{"distribution": name, "version": version} for name, version in _distributions.items()]
    return files + distributions


def _named() -> list[str]:
    """Return the paths in the environment variable."""
    return [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def _run(path: Path) -> str | PluginError:
    """Run a file as a separate module; return its hash, or the error for a file that cannot be run."""
    hash_of_path = hashlib.sha256(str(path).encode()).hexdigest()
    name = f"limbeck_plugin_{hash_of_path[:12]}"
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return PluginError(f"The plugin '{path}' ({VARIABLE}) is not a Python file; give one that ends in .py.")
    module = util.module_from_spec(spec)
    # Pydantic and dataclasses look up the names in annotations by the module's entry here.
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
    """Return the line of a plugin that raised an error, as a part of a sentence; empty where none of its lines did."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if not lines:
        return ""
    return f", line {lines[-1]}"


def _reason(error: Exception) -> str:
    """Return an error as a part of a sentence: the message of limbeck's own, the type before it for any other."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    message = message.rstrip(".")
    if isinstance(error, LimbeckError):
        return message
    return f"{type(error).__name__}: {message}"
