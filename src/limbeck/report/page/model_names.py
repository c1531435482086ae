"""Names of models as a figure or a line has room for them; a report says where they lie in its provenance."""

from __future__ import annotations


def last_part(name: str) -> str:
    """Return the last part of a name; of the student in a run's folder, the run's."""
    parts = [part for part in name.removeprefix("package:").rstrip("/").split("/") if part]
    return parts[-2] if len(parts) > 1 and parts[-1] == "student" else parts[-1] if parts else name


def without_path(name: str) -> str:
    """Return a name of the Hub or of a package as it is, and of a folder its last part."""
    is_path = name.startswith(("/", ".", "~")) or name.count("/") > 1
    return last_part(name) if is_path else name
