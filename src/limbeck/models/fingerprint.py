"""Fingerprints of models and tokenizers: hashes of their files, or of a Hub model's commit."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from limbeck.models.loading import load_config
from limbeck.models.locating import is_local, resolve_model

# Patterns of files. Records hold the fingerprints, so that neither these nor the way of hashing ever change.
_MODEL_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "modules.json", "*_Pooling/config.json")
_MODULE_FILES = ("*_Dense/config.json", "*_Dense/*.safetensors", "*_LayerNorm/config.json", "*_LayerNorm/*.safetensors")
_TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model")

_HASH_BYTES = 12
_CHUNK = 1 << 20
"""Bytes of a file that are read at once."""


def model_fingerprint(name: str, revision: str | None = None, *, modules: bool = True) -> str:
    """Return a hash of a model's weights, configuration and tokenizer; of a Hub model, of its commit.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        revision: Of a Hub model: branch, tag or commit; default: its main branch.
        modules: Whether to hash the weights of modules behind a pooling too, which earlier versions left out.

    Raises:
        ModelError: if there is no such model.
    """
    patterns = [*_MODEL_FILES, *_TOKENIZER_FILES]
    if modules:
        patterns += _MODULE_FILES
    return _hash_of(name, patterns, revision)


def fingerprint_beside(known: str | None, name: str, revision: str | None = None) -> str:
    """Return a model's fingerprint in the form in which a record holds it, so that equal models compare equal.

    An earlier version left out modules. If the record's fingerprint is the one that it gave this model, that is
    returned; else the present form.

    Args:
        known: The fingerprint in a record; None where there is none.
        name: As in `model_fingerprint`.
        revision: As in `model_fingerprint`.

    Raises:
        ModelError: if there is no such model.
    """
    current = model_fingerprint(name, revision)
    if known is None or known == current:
        return current
    earlier = model_fingerprint(name, revision, modules=False)
    return earlier if known == earlier else current


def tokenizer_fingerprint(name: str) -> str:
    """Return a hash of a model's tokenizer files, so that models with the same tokenizer share their tokens.

    Raises:
        ModelError: if there is no such model.
    """
    return _hash_of(name, _TOKENIZER_FILES, revision=None)


def _hash_of(name: str, patterns: Sequence[str], revision: str | None) -> str:
    """Hash the files of some patterns in a model's folder, or the commit of a Hub name."""
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    resolved = resolve_model(name)
    if not is_local(resolved):
        # The commit stands for all files, so that none of them is fetched.
        commit = getattr(load_config(name, revision), "_commit_hash", None)
        digest.update(f"{resolved}@{commit}".encode())
        return digest.hexdigest()

    folder = Path(resolved)
    # A file may fit several patterns.
    files: set[Path] = set()
    for pattern in patterns:
        files.update(folder.glob(pattern))
    for file in sorted(files):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
