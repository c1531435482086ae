"""Packages below limbeck that are called as functions: `limbeck.export` is a package, and a call of `limbeck.api`.

Python makes each imported package an attribute of limbeck, which hides a function of the same name. So the package
itself can be called.
"""

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package that is called as the function of its name in `limbeck.api`."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function."""
        return self._function()(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        """The function's, for `help` and notebooks."""
        return inspect.signature(self._function())

    def _function(self) -> Callable[..., Any]:
        # Imported when it is called: the functions bring torch.
        api = import_module("limbeck.api")
        _, _, name = self.__name__.rpartition(".")
        function: Callable[..., Any] = getattr(api, name)
        return function


def make_callable(package: str) -> None:
    """Let a package be called as the function of its name in `limbeck.api`.

    Args:
        package: Its `__name__`, such as `limbeck.export`.
    """
    module = sys.modules[package]
    # A package that imports its names when they are used may have a class of its own already.
    module.__class__ = type("CallablePackage", (CallablePackage, type(module)), {})
