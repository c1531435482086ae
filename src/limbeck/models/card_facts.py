"""Licence and language of a model, read from its card, and its name on the Hub."""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # In its reference, not in __all__.

from limbeck.core.paths import MODEL_CARD
from limbeck.errors import LimbeckError
from limbeck.models.locating import PACKAGE_PREFIX, is_local, resolve_model

LICENSE_KEYS = ("license", "license_name", "license_link")


def teacher_facts(model: str, name: str | None = None) -> dict[str, Any]:
    """Return where a teacher is from, its name on the Hub, and the facts of its card that hold for its students.

    Args:
        model: A folder, `package:NAME` or a Hub name, as the recipe has it.
        name: What the recipe calls it; one of the form `owner/model` is its name on the Hub.

    Returns:
        `kind` (`"folder"`, `"package"` or `"hub"`), `hub_id` (None where it has none), and `card`, see `card_fields`.

    Raises:
        ModelError: if there is no such folder or package.
    """
    local = is_local(resolve_model(model))
    kind = "package" if model.startswith(PACKAGE_PREFIX) else "folder" if local else "hub"
    given = name if name is not None and "/" in name and is_hub_name(name) else None
    return {"kind": kind, "hub_id": given or (model if kind == "hub" else None), "card": card_fields(model)}


def is_hub_name(text: str) -> bool:
    """Return whether the Hub could have a model of this name."""
    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True


def card_fields(model: str) -> dict[str, str]:
    """Return what a model's own card says of its licence, and its language where it has one alone.

    The card is read in its folder, its package or the Hub's cache; the network is not asked. Of several languages none
    is taken over: a student may have seen text in one of them only.

    Args:
        model: A folder, `package:NAME` or a Hub name.

    Returns:
        Some of `license`, `license_name`, `license_link` and `language`; none without a card that can be read.
    """
    path = _card_path(model)
    if path is None:
        return {}
    try:
        said = ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    except Exception:  # A card is anybody's text: what cannot be read says nothing.
        return {}
    found = {key: said[key] for key in LICENSE_KEYS if isinstance(said.get(key), str)}
    language = single_language(said.get("language"))
    return found | ({"language": language} if language is not None else {})


def single_language(said: Any) -> str | None:
    """Return a card's language where it names one alone."""
    if isinstance(said, list) and len(said) == 1:
        said = said[0]
    return said if isinstance(said, str) else None


def _card_path(model: str) -> Path | None:
    try:
        resolved = resolve_model(model)
    except LimbeckError:
        return None
    if is_local(resolved):
        # They differ for the old layout of sentence-transformers, whose card is above the Transformer's folder.
        near = (Path(resolved) / MODEL_CARD, Path(model).expanduser() / MODEL_CARD)
        return next((path for path in near if path.is_file()), None)
    cached = try_to_load_from_cache(resolved, MODEL_CARD)
    return Path(cached) if isinstance(cached, str) else None
