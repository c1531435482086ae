"""Methods: small declarative compositions of objectives."""

from importlib import import_module
from pkgutil import iter_modules

from limbeck.methods.citation import Citation
from limbeck.methods.composition import Method
from limbeck.methods.options import MethodOptions
from limbeck.methods.pairing import Pairing, Task
from limbeck.methods.registry import METHODS, register_as_method, register_method
from limbeck.methods.term import LearnedMap, Term

# Every module of the package: a method is registered as its file is read.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "METHODS",
    "Citation",
    "LearnedMap",
    "Method",
    "MethodOptions",
    "Pairing",
    "Task",
    "Term",
    "register_as_method",
    "register_method",
]
