"""Relative paths in a document, which may start from the current folder or from the document's folder."""

import os
import re
from contextlib import suppress
from glob import iglob
from pathlib import Path

_PLACEHOLDER = re.compile(r"\{\w+\}")

# Paths that were found nowhere, each with the second place that was tried.
_tried: dict[str, str] = {}


def find_beside(text: str, folder: Path) -> str:
    """Return a relative path or pattern as it leads somewhere: from the current folder, else from another one.

    A path that leads nowhere from either stays as it is, and `tried_beside` names the second place for messages.

    Args:
        text: The path, or anything else, which is returned.
        folder: The other folder.
    """
    is_absolute = text.startswith(("~", os.sep)) or "://" in text
    if is_absolute or _leads_somewhere(text):
        return text
    beside = str(folder / text)
    if _leads_somewhere(beside):
        return beside
    if folder.resolve() != Path.cwd():
        _tried[text] = beside
        _tried[str(Path(text))] = beside
    return text


def tried_beside(text: str) -> str:
    """Return, for the message on a missing path, the second place where it was looked for; empty if there is none."""
    if text not in _tried:
        return ""
    return f" (nor does '{_tried[text]}', beside the recipe)"


def _leads_somewhere(text: str) -> bool:
    """Whether a path exists, or a pattern matches something; a `{placeholder}` matches as `*`."""
    # Fails for a name that is too long or has a NUL, and for a broken pattern.
    with suppress(OSError, ValueError, re.error):
        if Path(text).exists():
            return True
        pattern = _PLACEHOLDER.sub("*", text)
        return any(iglob(pattern, recursive=True))  # noqa: PTH207
    return False
