"""What knows nothing of distillation, once each: files, folders, processes, registries, progress, the machine."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

IGNORED_LABEL = -100
"""Label of a position that counts nothing, as in `torch.nn.functional.cross_entropy`."""


def import_when_used(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` for a package that imports each of its names when it is first used.

    One module of it can then be imported without what the others need: torch and transformers take seconds. Where a
    module has the name of a function or class in it, that name of the package is the function or class.

    Args:
        package: Its `__name__`.
        homes: Its modules, each with the names that it holds, separated by spaces.

    Source:
        PEP 562.
    """
    home_of_name: dict[str, str] = {}
    for home, names in homes.items():
        for name in names.split():
            home_of_name[name] = home

    # Names that a module and a function or class in it share. Python sets each imported module as an attribute of its
    # package, which would hide the function. So the package gets a class of its own, which sets the function instead.
    shared_names = {name for name, home in home_of_name.items() if name == home}

    class PackageWithSharedNames(ModuleType):
        """A package in which a shared name stands for the function or class, and not for the module."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name in shared_names:
                value = getattr(value, name, value)
            super().__setattr__(name, value)

    if shared_names:
        sys.modules[package].__class__ = PackageWithSharedNames

    def get(name: str) -> Any:
        if name not in home_of_name:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = import_module(f"{package}.{home_of_name[name]}")
        return getattr(module, name)

    def list_names() -> list[str]:
        return sorted(home_of_name)

    return get, list_names
