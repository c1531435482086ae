"""Comparisons with sentence-transformers that succeeded, remembered until the model's files or the packages change.

`vector_check.py` makes them. Nothing heavy is imported, so that a comparison costs nothing the next time.
"""

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from limbeck.core.files import atomic_text, change_state, read_json
from limbeck.core.hashing import fingerprint
from limbeck.core.paths import default_cache_dir
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.sentence_reader import sentence_root
from limbeck.models.weight_files import weight_names

_PACKAGES = ("limbeck", "sentence-transformers", "transformers", "torch")
"""Packages whose versions may change the result of a comparison."""


def recall(model: str) -> str | None:
    """Return the remembered result of a model's comparison, in words; None where there is none.

    Args:
        model: A folder or `package:NAME`; of a Hub name nothing is remembered.
    """
    file = _result_file(model)
    if file is None:
        return None
    result = read_json(file).get("result")
    return result if isinstance(result, str) else None


def remember(model: str, result: str) -> None:
    """Remember the result of a model's comparison; a cache that cannot be written remembers nothing.

    Args:
        model: As in `recall`.
        result: In words.
    """
    file = _result_file(model)
    if file is None:
        return
    content = json.dumps({"model": model, "result": result}) + "\n"
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_text(file, content, durable=False, shared=True)


def _result_file(model: str) -> Path | None:
    """Return the file that remembers a model's comparison; None for a Hub name, and for a folder without weights.

    Its name is a hash of the model's files (their sizes and times) and of the packages' versions, so that a changed
    model has another file.
    """
    resolved = resolve_model(model)
    if not is_local(resolved):
        return None
    folder = Path(resolved)
    if not weight_names(folder):
        return None
    # Modules that make a vector of the Transformer's output lie in the root, which may be the folder above.
    root = sentence_root(folder)
    states = {}
    for file in sorted(root.rglob("*")):
        if file.is_file():
            states[str(file)] = change_state(file.stat())
    versions = [_version(package) for package in _PACKAGES]
    name = fingerprint([states, *versions])
    return default_cache_dir() / "compared-vectors" / f"{name}.json"


def _version(package: str) -> str | None:
    """The version of an installed package; None for one that is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
