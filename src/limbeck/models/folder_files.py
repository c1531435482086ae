"""Small files in the folder of a model: JSON files, and the list of modules of sentence-transformers.

Sentence-transformers makes a vector of a text by *modules* one after the other, such as a Transformer, a pooling and a
linear map. Its `modules.json` lists them, each with its class and with the folder that holds its configuration.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from limbeck.errors import ModelError

MODULES = "modules.json"
"""The file in which sentence-transformers lists its modules."""
LONGEST_NAME = 255
"""Most characters of the name of a file or a folder."""
_LARGEST_JSON = 16_000_000
"""Most bytes of a JSON file that is read."""


def read_json(file: Path, default: Any) -> Any:
    """Read a small JSON file of a model.

    Args:
        file: The file.
        default: Returned if there is no such file. Its type is also the type that the content must have: `{}` stands
            for an object, and `[]` for a list.

    Raises:
        ModelError: for a file that is damaged, too large, or of another type than the default.
    """
    if not file.is_file():
        return default
    try:
        if file.stat().st_size > _LARGEST_JSON:
            raise ModelError(
                f"The file '{file}' has more than {_LARGEST_JSON:,} bytes, more than that file has in any real "
                "model; copy or download the model again."
            )
        content = json.loads(file.read_text(encoding="utf-8"))
    # JSON that is nested too deeply raises a RecursionError.
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"The file '{file}' cannot be read as JSON; copy or download the model again.") from error
    # The files are anybody's, and may hold any JSON.
    if not isinstance(content, type(default)):
        raise ModelError(f"The file '{file}' does not have the expected structure; copy or download the model again.")
    return content


class ModuleEntry(NamedTuple):
    """An entry of `modules.json`.

    Attributes:
        cls: Path of the module's class, such as `sentence_transformers.models.Pooling`.
        place: Its folder, below that of the model; empty for the model's own.
    """

    cls: str
    place: str

    @property
    def class_name(self) -> str:
        """The name of the class alone, such as `Pooling`."""
        return self.cls.rpartition(".")[2]

    def folder(self, root: Path) -> Path:
        """Return the module's folder, given that of the model.

        Raises:
            ModelError: for a folder outside of the model's.
        """
        return folder_inside(root, self.place, MODULES)


def read_modules(folder: Path) -> list[ModuleEntry]:
    """Read the modules of a sentence-transformers folder in order; any other folder has none.

    Raises:
        ModelError: for a `modules.json` that cannot be read.
    """
    modules = []
    for entry in read_json(folder / MODULES, []):
        if isinstance(entry, dict):
            cls = str(entry.get("type", ""))
            place = str(entry.get("path") or "")
            modules.append(ModuleEntry(cls, place))
    return modules


def folder_inside(root: Path, name: str, origin: str) -> Path:
    """Return the path that a file of a model names, and refuse one outside of the model's folder.

    Args:
        root: The model's folder.
        name: The name in the file.
        origin: The file, for the message.

    Raises:
        ModelError: for an absolute path, one with `..`, or one that no file system has.
    """
    path = Path(name)
    leads_outside = path.is_absolute() or ".." in path.parts
    is_impossible = "\0" in name or len(name) > LONGEST_NAME
    if leads_outside or is_impossible:
        raise ModelError(
            f"The {origin} of '{root}' names '{name[:80]}', which lies outside of that folder, where limbeck reads "
            "nothing; copy the file into the folder."
        )
    return root / name
