"""The first line of a command that takes a while, and where there is none."""

import sys

import pytest

from limbeck.cli import start_notice
from limbeck.cli.start_notice import announce_start, cancel_start


@pytest.fixture(autouse=True)
def _before_torch(monkeypatch):
    """A process that has not imported PyTorch yet."""
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    cancel_start()


def notices():
    return [finder for finder in sys.meta_path if isinstance(finder, start_notice._Notice)]


@pytest.mark.parametrize(
    "arguments",
    [
        "distill recipe.yaml --quiet", "distill recipe.yaml -q", "distill recipe.yaml --json", "export --help",
        "evaluate -h", "methods", "--version", "",
    ],
)  # fmt: skip
def test_quiet_commands_helps_and_quick_commands_say_nothing(arguments):
    announce_start(arguments.split())
    assert notices() == []


def test_the_import_of_pytorch_is_told_once_and_nothing_is_found_by_it(capfd):
    announce_start(["distill", "recipe.yaml"])
    (notice,) = notices()
    assert notice.find_spec("yaml", None) is None
    assert capfd.readouterr().err == ""
    assert notice.find_spec("torch", None) is None
    assert capfd.readouterr() == ("", "loading PyTorch …\n")
    assert notices() == [] and notice.timer.finished.is_set()


def test_a_start_that_takes_longer_is_told_first(monkeypatch, capfd):
    monkeypatch.setattr(start_notice, "_SECONDS", 0.0)
    announce_start(["--debug", "evaluate", "m"])
    (notice,) = notices()
    notice.timer.join(20)
    assert capfd.readouterr().err == "limbeck is starting …\n"


def test_a_refused_command_says_nothing_more(capfd):
    announce_start(["distill", "nothing.yaml"])
    (notice,) = notices()
    cancel_start()
    notice.timer.join(20)
    assert capfd.readouterr().err == "" and notices() == []


def test_a_closed_standard_error_is_no_fault(monkeypatch):
    announce_start(["distill", "recipe.yaml"])
    (notice,) = notices()
    monkeypatch.setattr(sys, "stderr", None)
    assert notice.find_spec("torch", None) is None
