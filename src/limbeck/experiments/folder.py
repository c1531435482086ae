"""The folder of an evaluation: made by one preset and its overrides, and by no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from limbeck.core.files import write_atomically
from limbeck.errors import OutputError
from limbeck.experiments.results import ResultsFile

MANIFEST = "evaluation.json"


def prepare_folder(folder: Path, *, preset: str, overrides: list[str]) -> Path:
    """Make or take up the folder of an evaluation. Models, tasks and seeds may be added to it.

    The first cell binds it to its preset and settings: what was refused before one ran does not.

    Args:
        folder: The folder.
        preset: Name of the protocol.
        overrides: What was set otherwise.

    Returns:
        The folder.

    Raises:
        OutputError: if it is a file, holds something else or an evaluation by other settings, or cannot be written.
    """
    folder = folder.expanduser()
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Output '{folder}' is a file; give a folder.")
    asked = {"preset": preset, "set": overrides}
    if folder.is_dir() and any(folder.iterdir()):
        _check_same(folder, asked)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / MANIFEST, json.dumps(asked, indent=2) + "\n")
    except OSError as error:
        raise OutputError(f"Output folder '{folder}' cannot be written: {error.strerror or error}.") from None
    return folder


def _check_same(folder: Path, asked: dict[str, Any]) -> None:
    try:
        saved = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OutputError(f"Output folder '{folder}' holds no evaluation; choose an empty or new folder.") from None
    except (OSError, ValueError, RecursionError):
        raise OutputError(f"'{folder / MANIFEST}' cannot be read; choose another folder.") from None
    if not isinstance(saved, dict):
        raise OutputError(f"'{folder / MANIFEST}' cannot be read; choose another folder.")
    if not ResultsFile(folder).read():
        return
    for key, name in (("preset", "--preset"), ("set", "--set")):
        if saved.get(key) != asked[key]:
            raise OutputError(
                f"The evaluation in '{folder}' has {name} {_shown(saved.get(key))}, not {_shown(asked[key])}; "
                "use the same, or another --output."
            )


def _shown(value: Any) -> str:
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value)) or "nothing"
