"""The options of `limbeck finish` and `limbeck.finish`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path

from rich.console import Console

from limbeck.api.requests.fields import argument, request
from limbeck.api.requests.shared import console_option


@request
class FinishRequest:
    """A run that is ended early."""

    run: str | Path = argument(
        "Folder of the run.", python="The folder of a run that was stopped.", cls=Path, metavar="RUN"
    )
    _: KW_ONLY
    console: Console | None = console_option()
