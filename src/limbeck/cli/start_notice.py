"""The first line of a command that takes a while: it comes before the libraries are imported, which takes seconds.

This module is imported before all others, and so imports nothing that takes time.
"""

import re
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

COMMANDS_WITH_PYTORCH = frozenset(
    (
        *("quickstart", "finetune", "teach", "distill", "finish", "compare", "search"),
        *("evaluate", "benchmark", "inspect", "export", "validate", "recipe"),
    )
)
"""Commands that import PyTorch."""
_SECONDS = 0.4
"""Seconds after which a command that has not come to PyTorch yet says that it is starting."""


def is_quiet(arguments: Sequence[str]) -> bool:
    """Return whether arguments ask for the result alone: `--quiet`, `--json`, or a `q` among short options as in `-vq`.

    The arguments are not parsed yet.
    """
    return any(re.fullmatch(r"--quiet|--json|-v*q[vq]*", argument) for argument in arguments)


def announce_start(arguments: Sequence[str]) -> None:
    """Have this process say that the command starts and that it loads PyTorch, unless it is quiet or prints its help.

    Args:
        arguments: The arguments of the command line.
    """
    # The arguments are not parsed yet: a name of a command may stand anywhere among them.
    imports_pytorch = not COMMANDS_WITH_PYTORCH.isdisjoint(arguments)
    is_help = "--help" in arguments or "-h" in arguments
    if not imports_pytorch or is_help or is_quiet(arguments) or "torch" in sys.modules:
        return
    # Python asks each finder in `sys.meta_path` for a module that is imported. So the notice sees the import of torch,
    # and prints its second line then. A timer prints the first.
    notice = _Notice()
    sys.meta_path.insert(0, notice)
    timer = threading.Timer(_SECONDS, notice.say_start)
    timer.daemon = True  # A command that ends before does not wait for it.
    timer.start()
    notice.timer = timer


class _Notice:
    """Prints a line when PyTorch is imported, and one before if that takes long to come.

    Python asks it for every module that is imported, as the first of its finders; it finds none.

    Attributes:
        timer: Calls `say_start`.
    """

    timer: threading.Timer | None = None

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Print the line if PyTorch is imported, and find nothing."""
        if name == "torch":
            self.end()
            _print("loading PyTorch …")
        return None

    def say_start(self) -> None:
        """Print that the command starts."""
        _print("limbeck is starting …")

    def end(self) -> None:
        """Print nothing from now on."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self.timer is not None:
            self.timer.cancel()


def cancel_start() -> None:
    """Print no line of the start from now on: the command has something else to say."""
    for finder in list(sys.meta_path):
        if isinstance(finder, _Notice):
            finder.end()


def _print(line: str) -> None:
    """Print a line to standard error, if it can be written."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        # Standard error is closed, or cannot show the line.
        return
