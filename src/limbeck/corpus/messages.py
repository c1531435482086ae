"""Names and errors from outside, as they may stand in a message."""

from __future__ import annotations

from typing import Any

_LONGEST_PLACE = 300


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def one_line(text: object) -> str:
    """Return a name from outside as it may stand in a message: on one line, printable, of bounded length."""
    # File names may hold bytes that no terminal can print, newlines, and control sequences.
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text)[: 2 * _LONGEST_PLACE])
    return plain if len(plain) <= _LONGEST_PLACE else f"{plain[: _LONGEST_PLACE // 2]}…{plain[-_LONGEST_PLACE // 2 :]}"


def list_columns(names: Any) -> str:
    """Return the first few column names, sorted, as they appear in messages."""
    return ", ".join(one_line(name)[:60] for name in sorted(map(str, names))[:8]) or "no columns"
