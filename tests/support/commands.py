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


@pytest.fixture
def limbeck(capsys, monkeypatch):
    """Run the command line in this process, as `limbeck ARGUMENTS` would."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["limbeck", *map(str, arguments)])
        monkeypatch.setattr(main, "errors", Console(stderr=True, width=100, no_color=True))
        capsys.readouterr()
        code = 0
        try:
            main.run()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return Done(int(code), captured.out, captured.err)

    return call


def assert_one_line_error(done, code, *parts):
    assert done.returncode == code, done.stderr
    line = done.stderr.strip()
    assert line.startswith("error: "), line
    assert "\n" not in line and "Traceback" not in line
    for part in parts:
        assert part in line
    return line
