"""The folder of a search: made for one kind of search and one study, taken up again, never laid over something else."""

from __future__ import annotations

import json
from pathlib import Path

from limbeck.errors import OutputError

RECORD = "search.json"


def prepare_search_folder(folder: Path, *, kind: str, name: str) -> Path:
    """Make or take up the folder of a search.

    Args:
        folder: The folder.
        kind: Of the search.
        name: Of its study.

    Returns:
        The folder.

    Raises:
        OutputError: if it is a file, holds anything but this search, or cannot be written.
    """
    folder = folder.expanduser()
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Output '{folder}' is a file; give a folder.")
    record = folder / RECORD
    if folder.is_dir() and any(path.name != "search.journal" for path in folder.iterdir()):
        _check_same(folder, record, {"kind": kind, "name": name})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not record.exists():
            record.write_text(json.dumps({"kind": kind, "name": name, "status": "running"}) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"Output folder '{folder}' cannot be written: {error.strerror or error}.") from None
    return folder


def _check_same(folder: Path, record: Path, asked: dict[str, str]) -> None:
    try:
        saved = json.loads(record.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OutputError(f"Output folder '{folder}' holds no search; choose an empty or new folder.") from None
    except (OSError, ValueError, RecursionError):
        raise OutputError(f"'{record}' cannot be read; choose another folder.") from None
    found = {key: saved.get(key) if isinstance(saved, dict) else None for key in asked}
    if found != asked:
        raise OutputError(
            f"Output folder '{folder}' holds the search {found['kind']} '{found['name']}', not {asked['kind']} "
            f"'{asked['name']}'; choose another folder."
        )
