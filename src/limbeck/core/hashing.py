"""A short hash of plain values, by which equal work is known again."""

import hashlib
import json
from typing import Any


def fingerprint(values: Any) -> str:
    """Return a short hash of plain JSON values."""
    content = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(content, digest_size=12).hexdigest()
