"""The study of a search, read from the journal in its folder: nothing is written, locked or waited for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import OptunaError
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import Study

from limbeck.report.page.guarded import DAMAGED
from limbeck.search.requests import JOURNAL

_MOST_BYTES = 400 * 2**20


class _JournalText(BaseJournalBackend):
    """What a journal holds at a moment."""

    def __init__(self, path: Path) -> None:
        self._logs = list(_whole_lines(path))

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the entries from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuse: a report leaves a study as it is."""
        raise OSError("a report only reads studies")


def read_study(folder: Path, name: str) -> tuple[Study | None, tuple[str, ...]]:
    """Read a study as it stands.

    Args:
        folder: The search's folder.
        name: The study's name.

    Returns:
        The study, or None where there is none in the folder; and what is wrong with it, in lines.
    """
    path = folder / JOURNAL
    if not path.is_file():
        return None, ()
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None, (f"'{JOURNAL}' is larger than {_MOST_BYTES // 2**20} MB, and is not read.",)
        return optuna.load_study(study_name=name, storage=JournalStorage(_JournalText(path))), ()
    except (*DAMAGED, AssertionError, OptunaError, OSError, RecursionError) as error:
        return None, (f"The study '{name}' cannot be read from '{JOURNAL}' ({type(error).__name__}).",)


def _whole_lines(path: Path) -> Iterator[Any]:
    """Read the entries; a last line without an end is one that is being written, or that a killed worker left."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
