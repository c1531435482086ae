"""The folder of a comparison: what all runs in it share, so that they can be compared."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.core import folders, paths, studies
from limbeck.errors import OutputError
from limbeck.recipe.known_by_content import without_places

_TITLES = {
    "training": "training arguments common to all runs",
    "evaluation": "evaluation (preset and settings)",
    "teacher_weights": "teacher's weights",
    "text": "text of the corpus",
    "content": "text of the corpus",
}
"""Titles of what all runs share, by its name in the record; other names are their own titles."""


def check_shared_settings(folder: Path, record: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse to put runs beside others that they cannot be compared with.

    Args:
        folder: The folder of the comparison.
        record: The record in that folder, as plain values.
        settings: The settings that have to be the same for all runs in the folder, by name; plain values.

    Raises:
        OutputError: naming the first difference, and the way out.
    """
    recorded_settings = record.get("fixed", {})
    if not isinstance(recorded_settings, dict):
        raise OutputError(
            f"'{folder / studies.Comparison.FILE}' is not the record of a comparison; give another folder as --output."
        )
    # Records of earlier versions lack some names.
    common_names = [name for name in recorded_settings if name in settings]
    before = {name: recorded_settings[name] for name in common_names}
    now = {name: settings[name] for name in common_names}
    # The hashes of teacher and text tell whether these are the same. Where they are recorded, paths are not compared:
    # the files may have been moved.
    if _has_hashes(recorded_settings):
        before = without_places(before)
        now = without_places(now)
    difference = folders.first_difference(before, now)
    if difference is None:
        return

    # A place such as `teacher.model` is that of a setting, `teacher`, and of a key in it, `model`.
    name, _, key = difference.place.partition(".")
    prefix = f"{key} = " if key else ""
    raise OutputError(
        f"The {_TITLES.get(name, name)} of the comparison in '{folder}' was {prefix}{_shown(difference.old)} and "
        f"is now {prefix}{_shown(difference.new)}, so new runs could not be compared with the earlier ones; change "
        "it back, or give another --output."
    )


def _shown(value: Any) -> str:
    """Return a value of a setting as a message shows it."""
    return "unset" if value is None else json.dumps(value, ensure_ascii=False)


def _has_hashes(recorded_settings: Mapping[str, Any]) -> bool:
    """Whether the settings in a record include the hashes of teacher and text; those of earlier versions do not."""
    return "content" in recorded_settings and "teacher_weights" in recorded_settings


def known_teacher(record: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of the teacher in a comparison's record; None in records without it."""
    recorded_settings = record.get("fixed")
    if not isinstance(recorded_settings, dict):
        return None
    fingerprint = recorded_settings.get("teacher_weights")
    return fingerprint if isinstance(fingerprint, str) else None


def first_places(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return teacher and corpus of a comparison's record, with the paths that the comparison began with.

    Only the hashes of teacher and text can show that those at other paths are the same. So the result is empty for a
    record of an earlier version, which lacks them; and for an empty record, of a comparison that begins now.
    """
    recorded_settings = record.get("fixed")
    if not isinstance(recorded_settings, dict) or not _has_hashes(recorded_settings):
        return {}
    return {name: recorded_settings[name] for name in ("teacher", "corpus") if name in recorded_settings}


COMPARISON = folders.FolderKind(
    "comparison",
    studies.Comparison.FILE,
    check_shared_settings,
    way_out="put it back, or choose another folder",
    beside=frozenset({paths.INPUTS}),
)
"""The folder of a comparison."""
