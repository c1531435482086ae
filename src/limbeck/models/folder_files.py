"""Small files in the folder of a model: JSON files, the list of modules of sentence-transformers, folders inside."""

import json
from pathlib import Path
from typing import Any

from limbeck.errors import ModelError

MODULES = "modules.json"
"""The file in which sentence-transformers names what makes a vector."""
LONGEST_NAME = 255
"""Most characters of the name of a file or a folder."""
_LARGEST_JSON = 16_000_000


def read_json(file: Path, default: Any) -> Any:
    """Read a small JSON file of a model; without it, the default.

    Raises:
        ModelError: for a file that is damaged, too large, or of another type than the default.
    """
    if not file.is_file():
        return default
    try:
        if file.stat().st_size > _LARGEST_JSON:
            raise ModelError(
                f"The file '{file}' has more than {_LARGEST_JSON:,} bytes, more than that of any real model."
            )
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"The file '{file}' cannot be read as JSON; copy or download the model again.") from error
    if not isinstance(content, type(default)):
        raise ModelError(f"The file '{file}' does not have the expected structure; copy or download the model again.")
    return content


def read_modules(path: Path) -> list[dict[str, Any]]:
    """Return the modules of a sentence-transformers folder; none of another folder."""
    return [module for module in read_json(path / MODULES, []) if isinstance(module, dict)]


def folder_inside(root: Path, name: str, origin: str) -> Path:
    """Return the folder that a file of a model names, which never lies outside of the model's.

    Args:
        root: The model's folder.
        name: The name in the file.
        origin: The file, for the message.

    Raises:
        ModelError: for an absolute path, one with `..`, or one that no file system has.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name or len(name) > LONGEST_NAME:
        raise ModelError(
            f"The {origin} of '{root}' names '{name[:80]}', which lies outside of it; nothing there is read."
        )
    return root / name
