"""The folder of a model in a result: text for libraries that load models by text, and a path for everything else."""

from pathlib import Path
from typing import Any


class ModelFolder(str):
    """A model's folder as text that has the attributes and methods of its path as well.

    Some libraries load a model by text alone: `SentenceTransformer(folder)` raises TypeError for a path. What text has
    itself, such as `replace`, is that of text.

    Example:
        >>> student = ModelFolder("runs/e5/student")
        >>> student.name, student.parent, student / "config.json"
        ('student', PosixPath('runs/e5'), PosixPath('runs/e5/student/config.json'))
    """

    __slots__ = ()

    def __fspath__(self) -> str:
        return str(self)

    def __truediv__(self, part: str | Path) -> Path:
        return Path(self) / part

    def __getattr__(self, name: str) -> Any:
        return getattr(Path(self), name)

    def __eq__(self, value: object) -> bool:
        if isinstance(value, Path):
            return Path(self) == value
        return super().__eq__(value)

    def __hash__(self) -> int:
        return super().__hash__()
