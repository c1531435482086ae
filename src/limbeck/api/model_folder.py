"""The folder of a model in a result: a path that libraries take as text too."""

from pathlib import Path, PosixPath
from typing import Any


class ModelFolder(PosixPath):
    """A model's folder as a path that has the methods of its text as well.

    Some libraries load a model by text alone: `SentenceTransformer(folder)` raises TypeError for an ordinary path. What
    a path has itself, such as `replace`, is that of a path.

    Example:
        >>> student = ModelFolder("runs/e5/student")
        >>> student.name, "student" in student, student.startswith("runs/")
        ('student', True, True)
    """

    def __contains__(self, part: str) -> bool:
        return part in str(self)

    def __getattr__(self, name: str) -> Any:
        # Paths look for private attributes of their own before they set them.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(str(self), name)

    def with_segments(self, *parts: str) -> Path:
        """Return an ordinary path for what is made of this one, such as its parent; Python 3.12 and newer call it."""
        return Path(*parts)
