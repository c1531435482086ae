"""The first lines of a command that takes a while, where they end, and where there are none."""

import io
import os
import subprocess
import sys
import time

import pytest

from limbeck.cli import start_notice
from limbeck.cli.main import build_app
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


def wait_for(stream, lines, mark="\n"):
    """Wait until a stream has some lines, each of which has a mark at its end, and return them."""
    while stream.getvalue().count(mark) < lines:
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


@pytest.mark.parametrize("arguments", ["--debug evaluate m", "report runs/a", "finish runs/a", "trim m", "doctor"])
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
    if terminal == "xterm":
        wait_for(stream, 2, mark="\x1b[K")
        begin = "\rlimbeck is starting …\x1b[K\rlimbeck is starting (for 0 s so far)\x1b[K"
    else:
        wait_for(stream, 2)
        begin = "limbeck is starting …\nlimbeck is starting (for 0 s so far)\n"
    assert stream.getvalue().startswith(begin)


def test_the_line_of_a_terminal_ends_once_and_the_first_output_is_below_it(monkeypatch, streams):
    monkeypatch.setenv("TERM", "xterm")
    _, stream = streams(is_terminal=True)
    announce_start(["finish", "runs/a"])
    (notice,) = notices()
    wait_for(stream, 1, mark="\x1b[K")
    print("result", file=sys.stderr)
    notice.end()
    assert stream.getvalue().endswith("\x1b[K\nresult\n")
    assert stream.getvalue().count("\n") == 2


def test_a_terminal_in_which_nothing_was_shown_has_no_empty_line(monkeypatch, streams):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(start_notice, "_FIRST_SECONDS", 60.0)
    _, stream = streams(is_terminal=True)
    announce_start(["finish", "runs/a"])
    print("result", file=sys.stderr)
    assert stream.getvalue() == "result\n"


def test_a_line_is_cut_where_the_terminal_is_narrow(monkeypatch, streams):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((12, 24)))
    _, stream = streams(is_terminal=True)
    stream.fileno = lambda: 2
    announce_start(["finish", "runs/a"])
    wait_for(stream, 1, mark="\x1b[K")
    assert stream.getvalue().startswith("\rlimbeck is \x1b[K")


def test_lines_and_bytes_end_it_too(streams):
    for write in (lambda: sys.stdout.writelines(["a\n", "b\n"]), lambda: sys.stdout.buffer.write(b"a\n")):
        stdout, _ = streams()
        stdout.buffer = io.BytesIO()
        announce_start(["distill", "recipe.yaml"])
        write()
        assert notices() == [] and sys.stdout is stdout
        assert stdout.getvalue() + stdout.buffer.getvalue().decode() in ("a\nb\n", "a\n")


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


def test_ctrl_c_during_the_imports_of_the_command_line_stops_it_in_one_line():
    program = (
        "import signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'limbeck.cli.main':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv = ['limbeck', 'distill', 'recipe.yaml']\n"
        "from limbeck.__main__ import main\n"
        "main()\n"
    )
    # A process that is started in the background may ignore the signal, and so would those that it starts.
    program = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{program}"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "Stopped.\n")


def test_a_start_that_prints_nothing_more_ends_its_line_in_a_terminal():
    program = (
        "import os, sys, time\n"
        "from limbeck.cli.start_notice import announce_start\n"
        "os.environ['TERM'] = 'xterm'\n"
        "sys.stderr.isatty = lambda: True\n"
        "announce_start(['distill', 'recipe.yaml'])\n"
        "time.sleep(1)\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert process.returncode == 0
    assert process.stderr.endswith("…\x1b[K\n".encode())


def test_every_command_but_three_is_slow_to_start():
    commands = set(build_app().commands)
    assert commands - start_notice.SLOW_COMMANDS == {"methods", "schema", "status"}
    assert commands >= start_notice.SLOW_COMMANDS
