"""A stage's log on disk, a line an entry."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


def log_lines(entries: Iterable[Mapping[str, Any]]) -> str:
    """Write what was logged as `log.jsonl` has it, a line an entry."""
    return "".join(json.dumps(entry, sort_keys=True) + "\n" for entry in entries)
