"""Limits that bound memory where untrusted files are read: sizes of lines, documents, pages and unpacked content.

Modules read them as `limits.LONGEST_LINE`, so that tests can lower them.
"""

from __future__ import annotations

LONGEST_LINE = 16 * 2**20
"""Bytes. A longer line of a `.txt` file is read as several lines; in tables and JSON it is skipped."""

LONGEST_DOCUMENT = 4_000_000
"""Characters, about the length of War and Peace. A longer text is read as several documents, cut at spaces."""

MOST_EXPANSION = 200
"""A file that gives more than so many times its size is taken for damaged there; text packs 3 to 10 times."""

EXPANSION_FREE = 64 * 2**20
"""Bytes that any file may unpack to, however small it is."""


def most_unpacked(stored: int) -> int:
    """Return the bytes that so many stored ones may unpack to."""
    return max(EXPANSION_FREE, MOST_EXPANSION * stored)


LARGEST_WHOLE = 2**30
"""Bytes of a file that has to be read as a whole: JSON, and parquet that is compressed as a whole."""

LONGEST_PAGE = 4 * 2**20
"""Characters of a Markdown or reStructuredText page, which is read as a whole."""

BINARY_SHARE = 0.1
"""Of the bytes of a text file, those that no text has (control characters, bytes that are not UTF-8)."""

FEWEST_BINARY = 16
"""Such bytes that any text may have; with so many NULs it is binary whatever the share."""

JUDGED_BYTES = 2**16
"""Bytes of a text file that are judged together."""
