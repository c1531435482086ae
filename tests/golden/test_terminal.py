"""What commands print on a terminal of 100 columns, word for word."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from tests.fixtures.write_shipped import CHANGED, SHIPPED
from tests.golden.committed import SUFFIXES
from tests.golden.snapshot import check
from tests.support.command_tree import walk

COMMANDS = ["", *(name for name, _ in walk())]
FINDING = re.compile(r"  (ok|absent|warning|failed) +(?P<name>[^:]+): .+")


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shown(limbeck):
    """Standard output of a command, without spaces at the ends of its lines."""

    def show(*arguments: object, code: int = 0) -> str:
        done = limbeck(*arguments)
        assert done.returncode == code
        return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())

    return show


@pytest.mark.parametrize("command", COMMANDS, ids=lambda name: name or "limbeck")
def test_help(shown, command):
    name = "-".join(("limbeck", *command.split()))
    check(f"help/{name}.txt", shown(*command.split(), "--help"))


@pytest.mark.parametrize("arguments", [("methods",), ("methods", "minilmv2")])
def test_methods(shown, arguments):
    check(f"terminal/{'-'.join(arguments)}.txt", shown(*arguments))


def test_parts_and_findings_of_doctor(shown):
    """On the processor; versions, sizes and places are those of the machine."""
    lines = shown("doctor", "--quiet").splitlines()[:-1]
    found = [match and f"  {match['name']}" for match in map(FINDING.fullmatch, lines)]
    kept = [name or line for name, line in zip(found, lines, strict=True) if not line.startswith(" " * 10)]
    check("terminal/doctor.txt", "\n".join(kept) + "\n")


@pytest.mark.parametrize(("version", "suffix"), SUFFIXES.items())
@pytest.mark.parametrize("runs", ["finished", "killed", "comparison", ""], ids=lambda runs: runs or "all")
def test_status_of_shipped_folders(shown, tmp_path, monkeypatch, runs, version, suffix):
    shutil.copytree(SHIPPED / version, tmp_path / "runs")
    for journal in tmp_path.glob("*/*/search.journal"):
        os.utime(journal, ns=(CHANGED, CHANGED))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")  # One line a run, whatever time has passed.
    text = shown("status", f"runs/{runs}", code=int(runs in ("killed", "")))
    text = re.sub(r"[\d.]+ (s|min|h|d) ago", "TIME ago", text)
    check(f"terminal/status-{runs or 'all'}{suffix}.txt", re.sub(r"  +|[━─]+", " ", text))
