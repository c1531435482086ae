"""A checkpoint's files: grown aside, sealed with a manifest of their hashes, and made visible by one rename."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.core.files import read_json, write_atomically

MANIFEST = "manifest.json"
REPLACED = ".replaced"
STAGING = ".saving"
"""Where checkpoints grow and are taken apart, beside those that are whole."""


def file_facts(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Wait until a folder and all that is in it are on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def staging_of(folder: Path) -> Path:
    """Return where the checkpoints of a stage grow."""
    return folder / STAGING


def prepare_staging(folder: Path) -> Path:
    """Make an empty place for a checkpoint to grow in; what a killed write left there goes.

    Args:
        folder: The stage's folder.
    """
    staging = staging_of(folder)
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    return staging


def seal(checkpoint: Path, facts: Mapping[str, Any]) -> None:
    """Bring every file of a checkpoint to the disk, and list them with size and hash in its manifest.

    Args:
        checkpoint: Its folder, complete but for the manifest.
        facts: What else the manifest says.
    """
    sync_tree(checkpoint)
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    listed = {path.relative_to(checkpoint).as_posix(): file_facts(path) for path in files}
    write_atomically(checkpoint / MANIFEST, json.dumps({**facts, "files": listed}, indent=2) + "\n")
    sync(checkpoint)


def publish(checkpoint: Path, folder: Path) -> Path:
    """Make a sealed checkpoint visible in a folder, in the place of one of the same name.

    Args:
        checkpoint: Where it has grown, in a folder of `prepare_staging`, which goes.
        folder: Where it belongs.

    Returns:
        Where it is now.
    """
    target = folder / checkpoint.name
    if target.exists():
        target.rename(checkpoint.with_name(checkpoint.name + REPLACED))
    checkpoint.rename(target)
    sync(folder)
    shutil.rmtree(checkpoint.parent, ignore_errors=True)
    return target


def discard(path: Path) -> None:
    """Remove a checkpoint so that a kill half-way leaves no part of it under its name."""
    staging = path.parent / STAGING
    staging.mkdir(exist_ok=True)
    aside = staging / (path.name + ".discarded")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    shutil.rmtree(aside)


def find_damage(checkpoint: Path) -> str | None:
    """Compare a checkpoint with its manifest.

    Returns:
        What is wrong, with the file that it is wrong with; None for a checkpoint as it was written.
    """
    manifest = read_json(checkpoint / MANIFEST)
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not listed:
        return f"'{MANIFEST}' is missing or unreadable"
    for name, facts in listed.items():
        if ".." in Path(name).parts or Path(name).is_absolute():
            return f"'{MANIFEST}' lists {name!r:.80}, which lies outside"
        damage = file_damage(checkpoint / name, facts)
        if damage is not None:
            return damage
    return None


def file_damage(path: Path, facts: Any) -> str | None:
    """Compare a file with its size and hash; None if it is as it was written."""
    try:
        if path.exists() and not path.is_file():  # Of a pipe or a device there is no end.
            return f"'{path.name}' is no file"
        found = file_facts(path)
    except (OSError, ValueError) as error:
        return f"{path.name!r:.80} cannot be read ({getattr(error, 'strerror', None) or error})"
    if not isinstance(facts, dict) or found["bytes"] != facts.get("bytes"):
        return f"'{path.name}' has {found['bytes']:,} bytes and not those it was written with"
    return None if found["sha256"] == facts.get("sha256") else f"'{path.name}' has changed since it was written (hash)"
