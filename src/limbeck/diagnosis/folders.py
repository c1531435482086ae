"""The folders that limbeck and the Hub's client keep things in: where, how large, with how much room."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import constants

from limbeck.core.files import MANIFEST, default_cache_dir
from limbeck.diagnosis.finding import Finding, Status, gigabytes

LITTLE_ROOM = 2_000_000_000
"""Bytes below which a corpus or a model may not fit."""


def find() -> Iterator[Finding]:
    """Yield the corpus cache, the Hub's folder, and the one for what is temporary."""
    yield find_cache()
    yield find_hub()
    yield find_folder("temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder that can be written")


def find_cache() -> Finding:
    """Look at the folder of built corpora."""
    cache = default_cache_dir()
    named = "LIMBECK_CACHE" in os.environ
    found = find_folder("corpus cache", cache, "set LIMBECK_CACHE to a folder that can be written")
    if not cache.is_dir():
        return found
    files = [path for path in cache.rglob("*") if path.is_file()]
    size, corpora = sum(path.stat().st_size for path in files), sum(path.name == MANIFEST for path in files)
    text = f"{found.text}; {gigabytes(size)} in {corpora} finished folders"
    facts = {**found.facts, "bytes": size, "finished": corpora, "from_environment": named}
    return Finding(found.name, found.status, text, found.way_out, facts)


def find_hub() -> Finding:
    """Look at the folder that models of the Hub are fetched into."""
    found = find_folder("Hugging Face home", Path(constants.HF_HOME), "set HF_HOME to a folder that can be written")
    text = f"{found.text}; offline: nothing is fetched" if constants.HF_HUB_OFFLINE else found.text
    # Models in folders do without it.
    status: Status = "warning" if found.status == "failed" else found.status
    return Finding(found.name, status, text, found.way_out, {**found.facts, "offline": constants.HF_HUB_OFFLINE})


def find_folder(name: str, folder: Path, way_out: str) -> Finding:
    """Check that a folder can be written, or made, and that there is room in it."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    facts: dict[str, object] = {"path": str(folder), "exists": folder.is_dir(), "writable": _writable(existing)}
    if not facts["writable"]:
        return Finding(name, "failed", f"{folder} cannot be written", way_out, facts)
    free = shutil.disk_usage(existing).free
    text = f"{folder}{'' if folder.is_dir() else ' (made when it is needed)'}, {gigabytes(free)} free"
    facts["free_bytes"] = free
    if free < LITTLE_ROOM:
        return Finding(name, "warning", text, "make room, or choose a folder on another disk", facts)
    return Finding(name, "ok", text, facts=facts)


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:  # Also where a file is in the way.
        return False
