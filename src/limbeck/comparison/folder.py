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


def check_fixed(folder: Path, saved: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    """Refuse to put runs beside others that they cannot be compared with.

    Args:
        folder: The folder of the comparison.
        saved: The record of the comparison, as plain values.
        requested: What has to be the same for all runs in it, by name; plain values.

    Raises:
        OutputError: naming the first difference, and the way out.
    """
    fixed = saved.get("fixed", {})
    if not isinstance(fixed, dict):
        raise OutputError(
            f"'{folder / studies.Comparison.FILE}' is not the record of a comparison; choose another folder."
        )
    # Records of earlier versions lack some names.
    common_names = [name for name in fixed if name in requested]
    before = {name: fixed[name] for name in common_names}
    now = {name: requested[name] for name in common_names}
    has_hashes = bool(fixed_at_first(saved))
    if has_hashes:
        # The hashes of teacher and text are among the names and are compared. Paths, which may have changed since, are
        # not.
        before = without_places(before)
        now = without_places(now)
    difference = folders.first_difference(before, now)
    if difference is None:
        return

    # The keys that lead to the difference, joined by dots: `teacher.model` is the setting `model` of `teacher`.
    name, _, setting = difference.place.partition(".")
    prefix = f"{setting} = " if setting else ""
    raise OutputError(
        f"The {_TITLES.get(name, name)} of the comparison in '{folder}' was {prefix}{_shown(difference.old)} and is "
        f"now {prefix}{_shown(difference.new)}, so new runs could not be compared with its own; put it back, or give "
        "another --output."
    )


def _shown(value: Any) -> str:
    return "unset" if value is None else json.dumps(value, ensure_ascii=False)


def known_teacher(saved: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of the teacher in a comparison's record; None in records without it."""
    fixed = saved.get("fixed")
    if not isinstance(fixed, dict):
        return None
    fingerprint = fixed.get("teacher_weights")
    return fingerprint if isinstance(fingerprint, str) else None


def fixed_at_first(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return teacher and corpus of a comparison's record, with the paths that the comparison began with.

    It is empty for records of earlier versions, which lack the hashes of teacher and text.
    """
    fixed = saved.get("fixed")
    if not isinstance(fixed, dict):
        return {}
    is_known_by_content = "content" in fixed and "teacher_weights" in fixed
    if not is_known_by_content:
        return {}
    return {name: fixed[name] for name in ("teacher", "corpus") if name in fixed}


COMPARISON = folders.FolderKind(
    "comparison",
    studies.Comparison.FILE,
    check_fixed,
    way_out="put it back, or choose another folder",
    beside=frozenset({paths.INPUTS}),
)
"""The folder of a comparison."""
