"""Refusing a place that cannot be written before the work whose result it is for."""

from __future__ import annotations

import tempfile
from pathlib import Path

from limbeck.errors import OutputError


def check_writable(path: Path, folder: Path) -> None:
    """Make the folder of an output, and try that it can be written; rights alone do not say so.

    Args:
        path: As the user gave it with `--output`, for the message.
        folder: Where files will be.

    Raises:
        OutputError: if it cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"--output '{path}' cannot be written: {error.strerror or error}.") from None
