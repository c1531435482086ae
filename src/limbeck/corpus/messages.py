"""Names and errors from outside made safe for a message: on one line, printable and short."""

from collections.abc import Iterable

_LONGEST_NAME = 300
_MOST_COLUMNS = 8
_LONGEST_COLUMN = 60


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def safe_name(name: object) -> str:
    """Return a name from outside in a form that is safe in a message: on one line, printable, of bounded length."""
    # File names may contain bytes that no terminal can print, newlines, and control sequences.
    whole = str(name)
    if len(whole) > 2 * _LONGEST_NAME:
        # The rest is not shown.
        whole = whole[:_LONGEST_NAME] + whole[-_LONGEST_NAME:]
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in whole)
    if len(text) <= _LONGEST_NAME:
        return text
    half = _LONGEST_NAME // 2
    return f"{text[:half]}…{text[-half:]}"


def list_columns(names: Iterable[object]) -> str:
    """Return the first few column names, sorted, as they appear in messages."""
    first = sorted(map(str, names))[:_MOST_COLUMNS]
    return ", ".join(safe_name(name)[:_LONGEST_COLUMN] for name in first) or "no columns"
