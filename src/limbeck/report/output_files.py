"""The files that results are written to; those of inspections are checked before anything is measured."""

from collections.abc import Mapping
from pathlib import Path

from limbeck.core.files import atomic_text, check_writable, writing
from limbeck.errors import OutputError, RecipeError, suggestion

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
"""Endings of the files that pictures can be written to."""
DATA_SUFFIX = ".json"
"""Ending of the file that data are written to."""


def check_output(path: Path | None) -> None:
    """Refuse an output that could not be written, before anything is measured.

    Args:
        path: A folder, which has no suffix or exists; a file of data or of a picture; None if no output was asked for.

    Raises:
        RecipeError: for a file of another kind than data or a picture.
        OutputError: for an existing file without a suffix, and for a place where nothing can be written.
    """
    if path is None:
        return
    if path.is_dir() or not path.suffix:
        # A path without a suffix is the name of a folder.
        if path.exists() and not path.is_dir():
            raise OutputError(f"--output '{path}' is a file; give a folder, or a file that ends with .png or .json.")
        check_writable(path, path)
        return
    suffixes = (DATA_SUFFIX, *PICTURE_SUFFIXES)
    if path.suffix not in suffixes:
        raise RecipeError(
            f"--output '{path}' ends with '{path.suffix}', which is neither a type of data nor of a figure; give a "
            f"folder, or a file of another type.{suggestion(path.suffix, suffixes)}"
        )
    check_writable(path, path.parent)


def write_forms(folder: Path, stem: str, texts: Mapping[str, str]) -> list[Path]:
    """Write the forms of one result, each whole or not at all.

    Args:
        folder: Made if missing.
        stem: The files' name without suffix.
        texts: By the suffixes of the files.

    Returns:
        The files.

    Raises:
        OutputError: if a file cannot be written.
    """
    files = []
    for suffix, text in texts.items():
        path = folder / f"{stem}{suffix}"
        with writing(path):
            atomic_text(path, text)
        files.append(path)
    return files
