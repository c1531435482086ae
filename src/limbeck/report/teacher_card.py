"""What a run's record says of its teacher: its name on the Hub, its licence, and a single language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from huggingface_hub import try_to_load_from_cache

from limbeck.training.teacher import LICENSE_KEYS, card_fields, is_hub_name, single_language


def inherited_fields(record: Mapping[str, Any]) -> dict[str, str]:
    """Return `license` (with `license_name` and `license_link`) and `language` of the front matter.

    What the record says of the student goes first, then what it says of the teacher's card. For a run of an earlier
    version, which recorded nothing of that, the card is read where the teacher is on this machine.

    Args:
        record: A run's record.
    """
    theirs = _teacher_card(_mapping(record.get("teacher")), _mapping(_mapping(record.get("recipe")).get("teacher")))
    owner = record if isinstance(record.get("license"), str) else theirs
    found: dict[str, str] = {key: owner[key] for key in LICENSE_KEYS if isinstance(owner.get(key), str)}
    language = single_language(record.get("language") or theirs.get("language"))
    return found | ({"language": language} if language is not None else {})


def recorded_hub_name(record: Mapping[str, Any]) -> str | None:
    """Return the teacher's name on the Hub as the run recorded it; a folder has none, whatever it is called.

    Of a run of an earlier version, which did not record it, it is the name of the form `owner/model` that the recipe
    gives the teacher, else its `model` where that is in the Hub's cache on this machine.

    Args:
        record: A run's record.
    """
    teacher = _mapping(record.get("teacher"))
    if "hub_id" in teacher:
        found = teacher["hub_id"]
        return found if isinstance(found, str) and is_hub_name(found) else None
    asked = _mapping(_mapping(record.get("recipe")).get("teacher"))
    given = asked.get("name")
    if isinstance(given, str) and "/" in given and is_hub_name(given):
        return given
    name = asked.get("model") or teacher.get("name_or_path")
    is_cached = isinstance(name, str) and is_hub_name(name) and _is_cached(name)
    return name if is_cached else None


def _is_cached(name: str) -> bool:
    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def _teacher_card(teacher: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(teacher.get("card"), Mapping):
        return _mapping(teacher["card"])
    name = teacher.get("name_or_path")
    # The recipe may call it by another name than that of its place.
    place = asked.get("model") if name == asked.get("name") else name
    return card_fields(place) if isinstance(place, str) else {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
