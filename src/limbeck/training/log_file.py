"""The log of a stage on disk, `log.jsonl`, with one entry a line."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


def log_lines(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return the lines of a log: each entry as JSON with sorted keys."""
    return "".join(json.dumps(entry, sort_keys=True) + "\n" for entry in entries)
