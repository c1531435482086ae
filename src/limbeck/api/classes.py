"""Classes of objects by name: whether an object is of another library is told without an import of that."""

import re
from typing import Any

_NO_NAME = re.compile(r"[^\w.-]+")


def is_of(value: Any, package: str, name: str = "") -> bool:
    """Whether an object or class is, or derives from, a class of a package, and of a name if one is given."""
    classes = value.__mro__ if isinstance(value, type) else type(value).__mro__
    return any(cls.__module__.split(".")[0] == package and name in ("", cls.__name__) for cls in classes)


def class_name(value: Any) -> str:
    """Return the name of an object's class, fit for the name of a file."""
    return _NO_NAME.sub("-", type(value).__name__)
