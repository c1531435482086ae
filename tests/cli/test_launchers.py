"""Under a launcher of several processes most commands refuse, and one process says so."""

import pytest

from limbeck.cli.main import SHARED_BY_PROCESSES
from tests.support.command_tree import root
from tests.support.commands import assert_one_line_error


@pytest.fixture
def launched(monkeypatch):
    def launch(rank, count=2):
        monkeypatch.setenv("WORLD_SIZE", str(count))
        monkeypatch.setenv("RANK", str(rank))

    return launch


@pytest.mark.parametrize("command", sorted({*root().commands} - {*SHARED_BY_PROCESSES}))
def test_commands_of_one_process_refuse(limbeck, launched, command):
    arguments = [command, "x"] if command not in ("schema", "doctor", "quickstart") else [command]
    launched(0)
    line = assert_one_line_error(limbeck(*arguments), 2, f"`limbeck {command}` runs in one process", "started 2")
    assert "`limbeck distill`" in line
    assert ("--workers" in line) == (command in ("evaluate", "finetune"))
    launched(1)
    done = limbeck(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_distill_and_search_go_on_and_mistakes_in_a_call_are_said_once(limbeck, launched):
    launched(0)
    assert_one_line_error(limbeck("distill", "none.yaml", "--steps", "x"), 2, "--steps is 'x'")
    assert "runs in one process" not in limbeck("search", "mapping", "--help").stderr
    launched(1)
    done = limbeck("distill", "--tacher", "x")
    assert (done.returncode, done.stderr) == (2, "")


def test_one_process_of_a_launcher_is_as_good_as_none(limbeck, launched, monkeypatch):
    launched(0, count=1)
    limbeck.shown("schema")
    # Some clusters set the number of tasks wherever they run anything.
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("WORLD_SIZE", "8")
    limbeck.shown("schema")
