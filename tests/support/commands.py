"""The command line in this process, and the one line that an error is."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
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


def write_documents(making: Path, folder: Path) -> dict[str, list[list[str]]]:
    """Write the documents of a YAML file into a folder, and return the calls that make further folders of them."""
    said = yaml.safe_load(making.read_text(encoding="utf-8"))
    for name, content in said["documents"].items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return {name: [shlex.split(call) for call in calls] for name, calls in said["calls"].items()}


class CommandLine:
    """The command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: object) -> Done:
        """Run `limbeck ARGUMENTS`, and return its exit code and all that it prints."""
        self._monkeypatch.setattr(main, "errors", Console(stderr=True, width=100, no_color=True))
        self._capsys.readouterr()
        code = call(*arguments)
        captured = self._capsys.readouterr()
        return Done(code, captured.out, captured.err)

    def shown(self, *arguments: object) -> str:
        """Return the result of a call that ends well."""
        done = self(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: object) -> Any:
        """Return the result of a call that ends well, as JSON."""
        return json.loads(self.shown(*arguments, "--json"))


@pytest.fixture
def limbeck(capsys, monkeypatch):
    return CommandLine(capsys, monkeypatch)


def assert_one_line_error(done, code, *parts):
    assert done.returncode == code, done.stderr
    line = done.stderr.strip()
    assert line.startswith("error: "), line
    assert "\n" not in line and "Traceback" not in line
    for part in parts:
        assert part in line
    return line
