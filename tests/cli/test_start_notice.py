"""The first lines of a command that takes a while, where they end, and where there are none."""

import io
import sys
import time

import pytest

from limbeck.cli import start_notice
from limbeck.cli.start_notice import announce_start


class _Stream(io.StringIO):
    """A stream that keeps what is written, as a pipe or as a terminal."""

    def __init__(self, is_terminal=False):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


@pytest.fixture(autouse=True)
def _before_torch(monkeypatch):
    """A process that has not imported PyTorch yet; a line is due soon."""
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(start_notice, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(start_notice, "_WATCH_SECONDS", 0.01)
    monkeypatch.setattr(start_notice, "_LINE_SECONDS", 0.05)
    monkeypatch.setattr(start_notice, "_TERMINAL_SECONDS", 0.05)
    yield
    for notice in notices():
        notice.end()


@pytest.fixture(name="streams")
def _streams(monkeypatch):
    """Function that replaces standard output and standard error by streams that keep what is written."""

    # pytest itself replaces both once more between a fixture and its test.
    def replace(is_terminal=False):
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, _Stream(is_terminal))
        return sys.stdout, sys.stderr

    return replace


def notices():
    return [finder for finder in sys.meta_path if isinstance(finder, start_notice._Notice)]


def wait_for(stream, lines):
    """Wait until a stream has some lines, and return them."""
    while stream.getvalue().count("\n") < lines:
        time.sleep(0.01)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        "distill recipe.yaml --quiet", "distill recipe.yaml -q", "distill recipe.yaml --json", "export --help",
        "evaluate -h", "methods", "--version", "",
    ],
)  # fmt: skip
def test_quiet_commands_helps_and_quick_commands_say_nothing(arguments):
    stream = sys.stderr
    announce_start(arguments.split())
    assert notices() == [] and sys.stderr is stream


@pytest.mark.parametrize("arguments", ["--debug evaluate m", "report runs/a", "finish runs/a"])
def test_a_start_is_told_again_until_something_is_printed(arguments, streams):
    _, stream = streams()
    announce_start(arguments.split())
    lines = wait_for(stream, 3)
    assert lines[:3] == ["limbeck is starting …"] + 2 * ["limbeck is starting (for 0 s so far)"]


def test_the_import_of_pytorch_is_told_and_nothing_is_found_by_it(streams):
    _, stream = streams()
    announce_start(["distill", "recipe.yaml"])
    (notice,) = notices()
    assert notice.find_spec("yaml", None) is None
    assert notice.find_spec("torch", None) is None
    first, second, *_ = wait_for(stream, 2)
    assert first == "loading PyTorch and other libraries …"
    assert second == "loading PyTorch and other libraries (for 0 s so far)"
    notice.end()


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_it_ends_before_anything_else_is_printed(name, streams):
    stdout, stderr = streams()
    announce_start(["distill", "recipe.yaml"])
    wait_for(stderr, 1)
    print("result", file=getattr(sys, name))
    printed = stderr.getvalue()
    time.sleep(0.2)
    assert stderr.getvalue() == printed
    assert (sys.stdout, sys.stderr) == (stdout, stderr) and notices() == []


def test_a_stream_that_something_else_stands_before_by_now_stays(streams):
    streams()
    announce_start(["distill", "recipe.yaml"])
    (notice,) = notices()
    before = sys.stderr
    sys.stderr = other = _Stream()
    notice.end()
    assert sys.stderr is other
    assert before.write("text") == 4


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_a_terminal_has_one_line_that_changes_if_it_can(monkeypatch, terminal, streams):
    monkeypatch.setenv("TERM", terminal)
    _, stream = streams(is_terminal=True)
    announce_start(["finish", "runs/a"])
    wait_for(stream, 2)
    above = "\x1b[A\r" if terminal == "xterm" else ""
    assert stream.getvalue().startswith(f"limbeck is starting …\n{above}limbeck is starting (for 0 s so far)\n")


def test_a_closed_standard_error_is_no_fault(monkeypatch, streams):
    streams()
    monkeypatch.setattr(sys, "stderr", None)
    announce_start(["distill", "recipe.yaml"])
    assert notices() == [] and sys.stderr is None

    streams()
    announce_start(["distill", "recipe.yaml"])
    (notice,) = notices()
    sys.stderr.close()
    time.sleep(0.1)
    assert notice._thread.is_alive()
