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
    """Find a relative path or pattern in the current folder, or else in another one, with which it is then joined.

    A path that exists in neither is returned as it is. `tried_beside` then knows the second place, for messages.

    Args:
        text: The path. An absolute path, an address or any other text is returned as it is.
        folder: The other folder, such as that of a recipe.
    """
    is_absolute = text.startswith(("~", os.sep)) or "://" in text
    if is_absolute or _leads_somewhere(text):
        return text
    beside = str(folder / text)
    if _leads_somewhere(beside):
        return beside

    # Noted for the message on a missing path, which may have the path as it was written or in its normal form.
    if folder.resolve() != Path.cwd():
        _tried[text] = beside
        _tried[str(Path(text))] = beside
    return text


def tried_beside(text: str) -> str:
    """Return the part of a message on a missing path that names the second place; empty where there was none."""
    if text not in _tried:
        return ""
    return f" (nor does '{_tried[text]}', in the folder of the recipe)"


def _leads_somewhere(text: str) -> bool:
    """Whether a path exists, or a pattern matches something; a `{placeholder}` matches as `*`."""
    # A name that is too long or has a NUL character raises an error, and so does a broken pattern.
    with suppress(OSError, ValueError, re.error):
        if Path(text).exists():
            return True
        pattern = _PLACEHOLDER.sub("*", text)
        return any(iglob(pattern, recursive=True))  # noqa: PTH207
    return False
