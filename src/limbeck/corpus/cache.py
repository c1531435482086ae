"""Folders that are either complete or not there: built aside, a manifest last, then moved into place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from limbeck.errors import CorpusError

MANIFEST = "manifest.json"
_ASIDE = ".building-"
_STALE_SECONDS = 24 * 3600


def default_cache_dir() -> Path:
    """Return `$LIMBECK_CACHE`, or `~/.cache/limbeck`."""
    named = os.environ.get("LIMBECK_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "limbeck"


def fingerprint(values: Any) -> str:
    """Return a short hash of plain JSON values."""
    content = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def build_once(folder: Path, build: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest of `folder`, building the folder first unless it is complete.

    The work is done in a folder aside that is renamed at the end, so that a killed build leaves nothing that
    could be taken for a finished one, and two builders at once do no harm: the first to finish wins.

    Args:
        folder: Where the result belongs.
        build: Writes files into the folder it is given, and returns the manifest's content.

    Raises:
        CorpusError: if the cache cannot be written.
    """
    manifest = read_manifest(folder)
    if manifest is not None:
        return manifest
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder.parent)
        aside = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise CorpusError(f"Cannot write the corpus cache '{folder.parent}': {error.strerror}.") from error
    try:
        manifest = build(aside)
        _write_manifest(aside, manifest)
        return _move_into_place(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a complete folder, or `None` if the folder is missing, half built or damaged."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        sizes: dict[str, int] = manifest["files"]
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if whole else None


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest last, with the sizes of the files it vouches for."""
    manifest["files"] = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    partial = folder / f"{MANIFEST}.partial"
    with partial.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(folder / MANIFEST)


def _move_into_place(aside: Path, folder: Path) -> dict[str, Any]:
    for _ in range(3):
        try:
            aside.rename(folder)
        except OSError as error:
            # Another builder was faster, or a damaged folder is in the way.
            finished = read_manifest(folder)
            if finished is not None:
                return finished
            if not folder.exists():
                raise CorpusError(f"Cannot write the corpus cache '{folder}': {error.strerror}.") from error
            shutil.rmtree(folder, ignore_errors=True)
        else:
            break
    manifest = read_manifest(folder)
    if manifest is None:
        raise CorpusError(f"Cannot write the corpus cache '{folder}': remove that folder and try again.")
    return manifest


def _remove_stale(parent: Path) -> None:
    """Remove what builders that were killed have left; a running one touches its folder within a day."""
    for leftover in parent.glob(f"{_ASIDE}*"):
        try:
            stale = time.time() - leftover.stat().st_mtime > _STALE_SECONDS
        except OSError:  # Its builder has just finished.
            continue
        if stale:
            shutil.rmtree(leftover, ignore_errors=True)
