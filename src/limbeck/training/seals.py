"""Manifests of a checkpoint's files, with their sizes and hashes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.core.files import atomic_text, read_json, sync
from limbeck.core.paths import MANIFEST


def file_facts(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def sync_tree(folder: Path) -> None:
    """Wait until a folder and all that is in it are on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def seal(checkpoint: Path, facts: Mapping[str, Any]) -> None:
    """Bring every file of a checkpoint to the disk, and list them with size and hash in its manifest.

    Args:
        checkpoint: Its folder, complete but for the manifest.
        facts: What else the manifest says.
    """
    sync_tree(checkpoint)
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    listed = {path.relative_to(checkpoint).as_posix(): file_facts(path) for path in files}
    atomic_text(checkpoint / MANIFEST, json.dumps({**facts, "files": listed}, indent=2) + "\n")
    sync(checkpoint)


def find_damage(checkpoint: Path) -> str | None:
    """Compare a checkpoint with its manifest.

    Returns:
        What is wrong, with the file that it is wrong with; None for a checkpoint as it was written.
    """
    if checkpoint.is_symlink():
        return "it is a link, and checkpoints are folders; it is removed once a newer one is written, its target is not"
    listed = read_json(checkpoint / MANIFEST).get("files")
    if not isinstance(listed, dict) or not listed:
        return f"'{MANIFEST}' is missing or unreadable"
    for name, facts in listed.items():
        if ".." in Path(name).parts or Path(name).is_absolute():
            return f"'{MANIFEST}' lists {name!r:.80}, which lies outside the checkpoint"
        damage = file_damage(checkpoint / name, facts)
        if damage is not None:
            return damage
    return None


def file_damage(path: Path, facts: Any) -> str | None:
    """Compare a file with its size and hash; None if it is as it was written."""
    try:
        if path.exists() and not path.is_file():  # Of a pipe or a device there is no end.
            return f"'{path.name}' is not a file"
        actual = file_facts(path)
    except (OSError, ValueError) as error:
        return f"{path.name!r:.80} cannot be read ({getattr(error, 'strerror', None) or error})"
    if not isinstance(facts, dict) or actual["bytes"] != facts.get("bytes"):
        return f"'{path.name}' has {actual['bytes']:,} bytes, not the number it was written with"
    return None if actual["sha256"] == facts.get("sha256") else f"'{path.name}' has changed since it was written (hash)"
