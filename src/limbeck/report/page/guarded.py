"""Sections of damaged records: what can be shown is shown, what cannot is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from limbeck.report.page.content import Block, Notes, Section

DAMAGED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    ZeroDivisionError,
    OverflowError,
    StopIteration,
)
"""What code that trusts a record raises when the record lacks something, or has something else there."""


def guarded(title: str, build: Callable[[], Iterable[Block]]) -> list[Section]:
    """Build a section of a record that may be damaged.

    Args:
        title: Of the section.
        build: Makes its blocks.

    Returns:
        The section, as far as its blocks could be made, with a warning where they could not; none where there is
        nothing in it.
    """
    blocks: list[Block] = []
    try:
        blocks.extend(build())  # What was made before an error is kept.
    except DAMAGED as error:
        blocks.append(Notes((f"{title}: the record is incomplete or damaged ({_describe(error)}).",), warning=True))
    return [Section(title, tuple(blocks))] if blocks else []


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
