"""Files that the package ships for evaluations: its tasks, the protocols of papers and their published figures."""

from functools import cache
from pathlib import Path
from typing import Any, cast

from limbeck.core.yaml import read_document

DATA = Path(__file__).parent / "data"
"""The folder of these files; it has a folder for each of the three."""


@cache
def read_data_file(path: Path) -> dict[str, Any]:
    """Return the content of one of these files.

    Args:
        path: A YAML file below `DATA`.
    """
    return cast(dict[str, Any], read_document(path, f"'{path}'", "install limbeck again."))
