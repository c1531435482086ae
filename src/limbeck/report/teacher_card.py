"""What a teacher's own model card says that holds for its student too: the licence, and a single language."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, try_to_load_from_cache

from limbeck.errors import LimbeckError
from limbeck.models.locating import is_local, resolve_model

_LICENSE_KEYS = ("license", "license_name", "license_link")


def inherited_fields(record: Mapping[str, Any]) -> dict[str, str]:
    """Return `license` (with `license_name` and `license_link`) and `language` of the front matter.

    What the record says goes first. The rest is read from the teacher's card where that is on this machine, in its
    folder, its package or the Hub's cache; the network is not asked. Of several languages none is taken over: the
    student may have seen text in one of them only.

    Args:
        record: A run's record.
    """
    theirs = _teacher_card(record)
    found: dict[str, str] = {}
    owner = record if isinstance(record.get("license"), str) else theirs
    for key in _LICENSE_KEYS:
        if isinstance(owner.get(key), str):
            found[key] = owner[key]
    language = record.get("language") or theirs.get("language")
    if isinstance(language, list) and len(language) == 1:
        language = language[0]
    if isinstance(language, str):
        found["language"] = language
    return found


def _teacher_card(record: Mapping[str, Any]) -> dict[str, Any]:
    teacher = record.get("teacher")
    name = teacher.get("name_or_path") if isinstance(teacher, Mapping) else None
    path = _card_path(name) if isinstance(name, str) else None
    if path is None:
        return {}
    try:
        return dict(ModelCard.load(path, ignore_metadata_errors=True).data.to_dict())
    except Exception:  # A card is anybody's text: what cannot be read says nothing.
        return {}


def _card_path(name: str) -> Path | None:
    try:
        resolved = resolve_model(name)
    except LimbeckError:
        return None
    if is_local(resolved):
        # They differ for the old layout of sentence-transformers, whose card is above the Transformer's folder.
        near = (Path(resolved) / "README.md", Path(name).expanduser() / "README.md")
        return next((path for path in near if path.is_file()), None)
    cached = try_to_load_from_cache(resolved, "README.md")
    return Path(cached) if isinstance(cached, str) else None
