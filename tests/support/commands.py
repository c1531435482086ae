"""The command line in this process, and the one line that an error is."""

from __future__ import annotations

import sys
from typing import NamedTuple

import pytest
from rich.console import Console

from limbeck.cli import main


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def call(*arguments: object) -> int:
    """Run `limbeck ARGUMENTS` in this process; return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["limbeck", *map(str, arguments)])
        try:
            main.run()
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


@pytest.fixture
def limbeck(capsys, monkeypatch):
    """Run the command line in this process, and return its exit code and all that it prints."""

    def run(*arguments):
        monkeypatch.setattr(main, "errors", Console(stderr=True, width=100, no_color=True))
        capsys.readouterr()
        code = call(*arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def assert_one_line_error(done, code, *parts):
    assert done.returncode == code, done.stderr
    line = done.stderr.strip()
    assert line.startswith("error: "), line
    assert "\n" not in line and "Traceback" not in line
    for part in parts:
        assert part in line
    return line
