"""Comparisons with sentence-transformers that came out well, remembered until the weights or the packages change.

Nothing heavy is imported, so that what was compared once costs nothing the next time.
"""

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from limbeck.core.files import atomic_text, read_json
from limbeck.core.hashing import fingerprint
from limbeck.core.paths import default_cache_dir
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.weight_files import weight_names

_PACKAGES = ("limbeck", "sentence-transformers", "transformers", "torch")


def recall(model: str) -> str | None:
    """Return what a comparison of a model came to, in words; None where it is not known.

    Args:
        model: A folder or `package:NAME`; of a Hub name nothing is remembered.
    """
    place = _place(model)
    result = None if place is None else read_json(place).get("result")
    return result if isinstance(result, str) else None


def remember(model: str, result: str) -> None:
    """Keep what a comparison of a model came to; a cache that cannot be written keeps nothing.

    Args:
        model: As in `recall`.
        result: In words.
    """
    place = _place(model)
    if place is not None:
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            atomic_text(place, json.dumps({"model": model, "result": result}) + "\n", durable=False, shared=True)


def _place(model: str) -> Path | None:
    """Return the file for a model's comparison: named after its files, as they are on the disk, and the packages."""
    resolved = resolve_model(model)
    if not is_local(resolved):
        return None
    folder = Path(resolved)
    if not weight_names(folder):
        return None
    # The modules that make a vector lie above the Transformer, or below it.
    above = folder.parent if (folder.parent / "modules.json").is_file() else folder
    stats = {str(file): file.stat() for file in sorted(above.rglob("*")) if file.is_file()}
    known = {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}
    return default_cache_dir() / "compared-vectors" / f"{fingerprint([known, *map(_version, _PACKAGES)])}.json"


def _version(package: str) -> Any:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
