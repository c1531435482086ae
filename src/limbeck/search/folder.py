"""The folder of a search: what may lie in it before it has a record, and the one search that goes on in it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.core.files import atomic_text
from limbeck.core.folders import FolderKind, claim, writing
from limbeck.core.paths import INPUTS, SEARCH_RECORD
from limbeck.errors import OutputError
from limbeck.search.requests import JOURNAL

SEARCH = FolderKind("search", SEARCH_RECORD, beside=frozenset({JOURNAL, INPUTS}))
"""The folder of a search; texts and models that were given as objects are kept in it before the search begins."""


def prepare_search_folder(folder: Path, *, kind: str, name: str) -> None:
    """Make the folder of a search, or check that it is the folder of this search already.

    Args:
        folder: The folder.
        kind: The kind of the search.
        name: Name of its study.

    Raises:
        OutputError: if it is a file, holds anything but this search, or cannot be written.
    """
    folder = folder.expanduser()
    identity = {"kind": kind, "name": name}
    if not claim(folder, replace(SEARCH, check=_check_same), identity):
        with writing(folder):
            atomic_text(folder / SEARCH_RECORD, json.dumps({**identity, "status": "running"}) + "\n")


def _check_same(folder: Path, record: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Refuse the folder of another search.

    Args:
        folder: The folder.
        record: The record of the search that it holds.
        identity: Kind and name of the search to run.
    """
    held_kind = record.get("kind")
    held_name = record.get("name")
    kind = identity["kind"]
    name = identity["name"]
    if (held_kind, held_name) != (kind, name):
        raise OutputError(
            f"Output folder '{folder}' holds another search ({held_kind} '{held_name}', not {kind} '{name}'); "
            "choose another folder."
        )
