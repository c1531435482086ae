"""What a search leaves on disk: its record, its tables, its pictures, and the recipe of what it found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from limbeck.core.files import atomic_text
from limbeck.errors import OutputError
from limbeck.report.drawing import Picture, save_picture

RECORD, RECIPE = "search.json", "recipe.yaml"
_SUFFIXES = (".svg", ".png")


def write_search(
    folder: Path, record: Mapping[str, Any], figures: Mapping[str, Picture], tables: Mapping[str, str]
) -> list[Path]:
    """Write everything that a search leaves; files that are there are replaced, each whole or not at all.

    Args:
        folder: The search's folder, made if missing.
        record: Plain values without NaN. `recipe`, if it is there, is the recipe of what was found, and goes to
            `recipe.yaml`, under a line that says what found it: `kind` and `name`.
        figures: By their files' names without suffix; each is written as SVG and as PNG.
        tables: By their files' whole names, such as `search.md` or `generations.csv`.

    Returns:
        The files: record, recipe, tables, figures.

    Raises:
        OutputError: if a file cannot be written.
    """
    texts = {RECORD: json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"}
    if record.get("recipe") is not None:
        header = f"# Found by `limbeck search {record['kind']}` (study '{record['name']}'); train it: limbeck distill\n"
        texts[RECIPE] = header + yaml.safe_dump(record["recipe"], sort_keys=False, allow_unicode=True, width=100)
    texts |= tables
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            # Workers that were started by hand end together, and all write.
            atomic_text(folder / name, text, shared=True)
    except OSError as error:
        raise OutputError(f"'{folder}' cannot be written: {error.strerror or error}.") from None
    written = [folder / name for name in texts]
    for stem, picture in figures.items():
        for suffix in _SUFFIXES:
            path = folder / f"{stem}{suffix}"
            save_picture(picture, path)
            written.append(path)
    return written
