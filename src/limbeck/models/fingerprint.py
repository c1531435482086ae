"""Fingerprints of models and tokenizers: hashes of their files, or a Hub model's commit."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from limbeck.models import loading, locating

_MODEL_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "modules.json", "*_Pooling/config.json")
_MODULE_FILES = ("*_Dense/config.json", "*_Dense/*.safetensors", "*_LayerNorm/config.json", "*_LayerNorm/*.safetensors")
_TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model")
_CHUNK = 1 << 20


def model_fingerprint(name: str, revision: str | None = None, *, modules: bool = True) -> str:
    """Return a hash of a model's weights, configuration and tokenizer; of a Hub model, of its commit.

    Args:
        name: A folder, `package:NAME` or a Hub name.
        revision: Of a Hub model: branch, tag or commit; default: its main branch.
        modules: Count the weights of modules behind a pooling; earlier versions left them out.

    Raises:
        ModelError: if there is no such model.
    """
    return _hash_of(name, (*_MODEL_FILES, *(_MODULE_FILES if modules else ()), *_TOKENIZER_FILES), revision)


def fingerprint_beside(known: str | None, name: str, revision: str | None = None) -> str:
    """Return a model's fingerprint; where an earlier version wrote down a known one of it, that.

    Args:
        known: What was written down, if anything was.
        name: As in `model_fingerprint`.
        revision: As in `model_fingerprint`.

    Raises:
        ModelError: if there is no such model.
    """
    current = model_fingerprint(name, revision)
    if known in (None, current):
        return current
    earlier = model_fingerprint(name, revision, modules=False)
    return earlier if known == earlier else current


def tokenizer_fingerprint(name: str) -> str:
    """Return a hash of a model's tokenizer files, so that models with the same tokenizer share their tokens.

    Raises:
        ModelError: if there is no such model.
    """
    return _hash_of(name, _TOKENIZER_FILES)


def _hash_of(name: str, patterns: Sequence[str], revision: str | None = None) -> str:
    resolved, digest = locating.resolve_model(name), hashlib.blake2b(digest_size=12)
    if not locating.is_local(resolved):
        digest.update(f"{resolved}@{getattr(loading.load_config(name, revision), '_commit_hash', None)}".encode())
        return digest.hexdigest()
    folder = Path(resolved)
    for file in sorted({file for pattern in patterns for file in folder.glob(pattern)}):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
