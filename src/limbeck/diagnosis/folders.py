"""Checks of the folders that limbeck writes to: the corpus cache, the Hub's folder, and the one for temporary files."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from limbeck.core.paths import MANIFEST, default_cache_dir
from limbeck.diagnosis.findings import Finding, Status, gigabytes

_LITTLE_ROOM = 2_000_000_000
"""Bytes below which a corpus or a model may not fit."""


def find_folders() -> Iterator[Finding]:
    """Yield the findings on the corpus cache, the Hub's folder, and the folder for temporary files."""
    yield find_cache()
    yield find_hub()
    yield find_folder("temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder that can be written")


def find_cache() -> Finding:
    """Check the folder of built corpora, and measure the space that they take."""
    cache = default_cache_dir()
    finding = find_folder("corpus cache", cache, "set LIMBECK_CACHE to a folder that can be written")
    if not cache.is_dir():
        return finding
    files = [path for path in cache.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    # The manifest of a corpus is written last, so each manifest stands for a corpus that was built to the end.
    finished = sum(path.name == MANIFEST for path in files)
    text = f"{finding.text}; {gigabytes(size)} in {finished} finished folders"
    is_set_by_user = "LIMBECK_CACHE" in os.environ
    facts = {**finding.facts, "bytes": size, "finished": finished, "from_environment": is_set_by_user}
    return replace(finding, text=text, facts=facts)


def find_hub() -> Finding:
    """Check the folder that models of the Hub are fetched into; a folder that cannot be written is only a warning."""
    # Imported here, so that a damaged huggingface_hub does not hide the finding on the corpus cache.
    from huggingface_hub import constants

    finding = find_folder("Hugging Face home", Path(constants.HF_HOME), "set HF_HOME to a folder that can be written")
    text = finding.text
    if constants.HF_HUB_OFFLINE:
        text += "; offline: nothing is fetched"
    # A user with all models in local folders does not need it.
    status: Status = "warning" if finding.status == "failed" else finding.status
    facts = {**finding.facts, "offline": constants.HF_HUB_OFFLINE}
    return replace(finding, status=status, text=text, facts=facts)


def find_folder(name: str, folder: Path, way_out: str) -> Finding:
    """Check that a folder can be written, or made, and that there is room in it.

    Args:
        name: Name of the finding.
        folder: The folder, which need not exist yet.
        way_out: The way out where it cannot be written.
    """
    # A folder that does not exist is made in the nearest one above it that does, so this one is tested.
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    is_writable = _is_writable(nearest)
    facts: dict[str, object] = {"path": str(folder), "exists": folder.is_dir(), "writable": is_writable}
    if not is_writable:
        return Finding(name, "failed", f"{folder} cannot be written", way_out=way_out, facts=facts)
    free = shutil.disk_usage(nearest).free
    facts["free_bytes"] = free
    state = "" if folder.is_dir() else " (made when it is needed)"
    text = f"{folder}{state}, {gigabytes(free)} free"
    if free < _LITTLE_ROOM:
        return Finding(name, "warning", text, way_out="make room, or choose a folder on another disk", facts=facts)
    return Finding(name, "ok", text, facts=facts)


def _is_writable(folder: Path) -> bool:
    """Return whether a file can be made in a folder; permissions alone would not tell of a full or read-only disk."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:  # Also where `folder` is a file.
        return False
