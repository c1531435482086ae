"""Room on a disk: compared with what a piece of work is going to write, before it begins."""

import shutil
from pathlib import Path


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes of the disk of a folder, which need not exist yet; None where the system does not say."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        return shutil.disk_usage(existing).free
    except OSError:
        return None


def missing_room(folder: Path, needed: float) -> str | None:
    """Return the words for a disk that has too little room; None where there is enough, or nobody knows.

    Args:
        folder: The folder that is written to.
        needed: Bytes that will be written.
    """
    free = free_bytes(folder)
    if free is None or free >= needed:
        return None
    return f"about {megabytes(needed)} in '{folder}', whose disk has {megabytes(free)} free"


def megabytes(count: float) -> str:
    """Return bytes in words, such as `1,070 MB`."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e6:.2g} MB"
