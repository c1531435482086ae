"""Methods: small declarative compositions of objectives."""

from importlib import import_module
from pkgutil import iter_modules

from limbeck.methods.citation import Citation
from limbeck.methods.composition import Method
from limbeck.methods.options import MethodOptions
from limbeck.methods.pairing import Pairing, Task
from limbeck.methods.registry import METHODS, register_as_method, register_method
from limbeck.methods.teaching import TEACHINGS, Teaching, register_as_teaching
from limbeck.methods.term import LearnedMap, Term
from limbeck.models.teaching_facts import TeachingFacts

# Every module of the package: a method is registered as its file is read.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "METHODS",
    "TEACHINGS",
    "Citation",
    "LearnedMap",
    "Method",
    "MethodOptions",
    "Pairing",
    "Task",
    "Teaching",
    "TeachingFacts",
    "Term",
    "register_as_method",
    "register_as_teaching",
    "register_method",
]
