"""Hashes of plain values and of files, by which equal work is known again."""

import hashlib
import json
from hashlib import file_digest
from pathlib import Path
from typing import Any

import xxhash


def fingerprint(values: Any) -> str:
    """Return a short hash of plain JSON values."""
    content = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def hash_file(path: Path) -> str:
    """Return a hash of the content of a file."""
    with path.open("rb") as file:
        return file_digest(file, xxhash.xxh3_128).hexdigest()
