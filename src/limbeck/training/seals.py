"""Manifests of checkpoints: each file with its size and SHA-256, so that damage is found before a run goes on."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.core.files import atomic_text, read_json, sync
from limbeck.core.paths import MANIFEST


def seal(checkpoint: Path, facts: Mapping[str, Any]) -> None:
    """Bring every file of a checkpoint to the disk, and write the manifest.

    Args:
        checkpoint: Its folder, complete but for the manifest.
        facts: Further entries of the manifest, such as the step.
    """
    sync_tree(checkpoint)
    facts_by_file: dict[str, Any] = {}
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file():
            facts_by_file[path.relative_to(checkpoint).as_posix()] = file_facts(path)
    atomic_text(checkpoint / MANIFEST, json.dumps({**facts, "files": facts_by_file}, indent=2) + "\n")
    sync(checkpoint)


def find_damage(checkpoint: Path) -> str | None:
    """Compare a checkpoint with its manifest.

    Returns:
        The damage in words, with the name of the damaged file; None for a checkpoint as it was written.
    """
    if checkpoint.is_symlink():
        return "it is a link, and checkpoints are folders; it is removed once a newer one is written, its target is not"
    facts_by_file = read_json(checkpoint / MANIFEST).get("files")
    if not isinstance(facts_by_file, dict) or not facts_by_file:
        return f"'{MANIFEST}' is missing or unreadable"
    for name, facts in facts_by_file.items():
        # A manifest that somebody changed must not make limbeck read files elsewhere.
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return f"'{MANIFEST}' lists {name!r:.80}, which lies outside the checkpoint"
        damage = file_damage(checkpoint / name, facts)
        if damage is not None:
            return damage
    return None


def file_damage(path: Path, facts: Any) -> str | None:
    """Compare a file with its size and hash.

    Args:
        path: The file.
        facts: The result of `file_facts` as it was read back, of any type if it was damaged.

    Returns:
        The damage in words; None for a file as it was written.
    """
    try:
        # A pipe or a device would never end.
        if path.exists() and not path.is_file():
            return f"'{path.name}' is not a file"
        actual = file_facts(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"{path.name!r:.80} cannot be read ({reason})"
    if not isinstance(facts, dict) or actual["bytes"] != facts.get("bytes"):
        return f"'{path.name}' has {actual['bytes']:,} bytes, not the number it was written with"
    if actual["sha256"] != facts.get("sha256"):
        return f"'{path.name}' has changed since it was written (hash)"
    return None


def file_facts(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def sync_tree(folder: Path) -> None:
    """Wait until a folder and all that is in it are on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)
