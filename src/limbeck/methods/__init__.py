"""Methods: small declarative compositions of objectives."""

from limbeck.methods.composition import Citation, LearnedMap, Method, MethodOptions, Pairing, Task, Term
from limbeck.methods.registry import METHODS, register_as_method, register_method

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
