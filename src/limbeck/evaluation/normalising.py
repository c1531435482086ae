"""Comparing texts for duplicates."""

from __future__ import annotations

import re


def normalised(text: str) -> str:
    """Return `text` as it is compared for duplicates: case-folded, only letters and digits, single spaces."""
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()
