"""What an inspection leaves on disk: its data as JSON and its pictures, in a folder or one of them in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limbeck.core.files import check_writable
from limbeck.errors import OutputError, RecipeError, suggestion
from limbeck.report.drawing import PICTURE_SUFFIXES, Picture, save_picture

_DATA_SUFFIX = ".json"


def check_output(path: Path | None) -> None:
    """Refuse a place that could not be written, before anything is measured.

    Raises:
        RecipeError: for a file of another kind than data or a picture.
        OutputError: for a file where a folder is meant, or where nothing can be written.
    """
    if path is None:
        return
    if not path.suffix and not path.is_dir():
        if path.exists():
            raise OutputError(f"--output '{path}' is a file; give a folder, or a file that ends with .png or .json.")
    elif not path.is_dir() and path.suffix not in (_DATA_SUFFIX, *PICTURE_SUFFIXES):
        raise RecipeError(
            f"--output '{path}' ends with '{path.suffix}', neither data nor a picture; give a folder, or a file."
            f"{suggestion(path.suffix, (_DATA_SUFFIX, *PICTURE_SUFFIXES))}"
        )
    check_writable(path, path if path.is_dir() or not path.suffix else path.parent)


def write_inspection(path: Path, name: str, data: Mapping[str, Any], pictures: Mapping[str, Picture]) -> list[Path]:
    """Write data and pictures into a folder, or one kind of them into a file.

    Args:
        path: A folder, made if missing; or a file whose suffix says what it is.
        name: What was inspected: the files' name in a folder.
        data: Plain values.
        pictures: By what is added to the file's name, empty for the first.

    Returns:
        The files.

    Raises:
        RecipeError: see `check_output`.
        OutputError: if a file cannot be written.
    """
    check_output(path)
    whole = path.is_dir() or not path.suffix
    written: list[Path] = []
    if whole or path.suffix == _DATA_SUFFIX:
        file = path / f"{name}{_DATA_SUFFIX}" if whole else path
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"'{file}' cannot be written: {error.strerror}.") from error
        written.append(file)
    if whole or path.suffix in PICTURE_SUFFIXES:
        first = path / f"{name}.png" if whole else path
        for added, picture in pictures.items():
            file = first.with_stem(f"{first.stem}{added}")
            save_picture(picture, file)
            written.append(file)
    return written
