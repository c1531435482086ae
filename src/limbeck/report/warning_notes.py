"""The warnings that head a page, cut where there are too many to read."""

from collections.abc import Sequence

from limbeck.core.blocks import Notes, counted

_MOST_WARNINGS = 20
"""Most warnings in a list; the others are counted."""


def first_warnings(warnings: Sequence[str]) -> Notes:
    """Return warnings as a block: the first 20, and the number of those that are left out.

    Args:
        warnings: The weightiest first.
    """
    lines = list(warnings[:_MOST_WARNINGS])
    left_out = len(warnings) - len(lines)
    if left_out:
        lines.append(f"And {counted(left_out, 'more warning')}.")
    return Notes(tuple(lines), warning=True)
