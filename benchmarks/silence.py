"""Measure how long a command is silent: `python benchmarks/silence.py -- limbeck distill recipe.yaml`.

The command runs with its output in pipes, as in a file of a cluster or in the log of a CI; with `--terminal`, in a
terminal of 100 columns. Every arrival of bytes on standard output or standard error is noted with its time. The longest
silences are printed, each with the line before it; the time before the first byte and after the last one are silences
too.

With `--notebook`, a notebook's kernel runs a cell: `python benchmarks/silence.py --notebook -- cell.py`. Every change
that a reader sees is noted. This needs the packages `ipykernel` and `jupyter_client`.
"""

import argparse
import fcntl
import os
import pty
import re
import selectors
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
BLOCK = 65_536
"""Bytes that are read at once."""
WIDTH = 100
"""Characters of a line that are shown, and columns of the terminal."""
TERMINAL_LINES = 40


@dataclass(frozen=True)
class Arrival:
    """Bytes that a command wrote.

    Args:
        seconds: Seconds since the command began.
        line: The last line that was written so far.
    """

    seconds: float
    line: str


@dataclass(frozen=True)
class Silence:
    """A time without output.

    Args:
        seconds: Its length.
        begin: When it began, in seconds since the command began.
        before: The last line before it.
    """

    seconds: float
    begin: float
    before: str


def listen(
    command: list[str], log: IO[bytes] | None = None, *, terminal: bool = False
) -> tuple[list[Arrival], float, int]:
    """Run a command, and note when it writes.

    Args:
        command: The command and its arguments.
        log: Receives all that the command writes.
        terminal: Whether the command writes to a terminal, in place of two pipes.

    Returns:
        The arrivals of output, the seconds until the command ended, and its exit code.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    began = time.monotonic()
    if terminal:
        process, outputs = start_in_terminal(command, environment)
    else:
        process, outputs = start_in_pipes(command, environment)
    arrivals: list[Arrival] = []
    selector = selectors.DefaultSelector()
    for output in outputs:
        selector.register(output, selectors.EVENT_READ)
    while selector.get_map():
        for key, _ in selector.select():
            written = read_output(key.fd)
            if not written:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                continue
            if log is not None:
                log.write(written)
            lines = written.decode(errors="replace").splitlines()
            filled_lines = [line for line in lines if line.strip()]
            before = arrivals[-1].line if arrivals else ""
            line = filled_lines[-1] if filled_lines else before
            arrivals.append(Arrival(time.monotonic() - began, line.strip()))
    code = process.wait()
    return arrivals, time.monotonic() - began, code


def listen_to_notebook(cell: str) -> tuple[list[Arrival], float, int]:
    """Run a cell in a notebook's kernel, and note when a reader sees something change; as `listen`."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(env=os.environ | {"PYTHONPATH": str(ROOT / "src")})
    began = time.monotonic()
    request = client.execute(cell)
    arrivals: list[Arrival] = []
    code = 0
    is_busy = True
    while is_busy:
        message = client.get_iopub_msg(timeout=None)
        if message["parent_header"].get("msg_id") != request:
            continue
        content = message["content"]
        is_busy = content.get("execution_state") != "idle"
        if message["msg_type"] == "error":
            code = 1
        text = content.get("text") or "".join(content.get("data", {}).values())
        line = " ".join(re.sub("<[^>]*>", " ", text).split())
        before = arrivals[-1].line if arrivals else ""
        if line and line != before:
            arrivals.append(Arrival(time.monotonic() - began, line))
    end = time.monotonic() - began
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return arrivals, end, code


def start_in_pipes(command: list[str], environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Start a command that writes to two pipes.

    Returns:
        The process, and the descriptors to read its standard output and standard error from.
    """
    output, output_of_process = os.pipe()
    error, error_of_process = os.pipe()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output_of_process, stderr=error_of_process, env=environment
    )
    # A pipe ends when nobody can write to it any more.
    os.close(output_of_process)
    os.close(error_of_process)
    return process, [output, error]


def start_in_terminal(command: list[str], environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Start a command that writes to a terminal.

    Returns:
        The process, and the descriptor to read from what the terminal would show.
    """
    output, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", TERMINAL_LINES, WIDTH, 0, 0))
    variables = environment | {"TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=variables)
    os.close(terminal)
    return process, [output]


def read_output(descriptor: int) -> bytes:
    """Return bytes that have arrived; none if the process closed its side."""
    try:
        return os.read(descriptor, BLOCK)
    except OSError:  # A terminal that nobody writes to any more ends by an error.
        return b""


def silences_between(arrivals: list[Arrival], end: float) -> list[Silence]:
    """The silences of a command, the longest first; the times before the first byte and after the last are among them.

    Args:
        arrivals: The arrivals of its output.
        end: The seconds until it ended.
    """
    silences: list[Silence] = []
    begin = 0.0
    line = "(the start)"
    for arrival in arrivals:
        silences.append(Silence(arrival.seconds - begin, begin, line))
        begin = arrival.seconds
        line = arrival.line
    silences.append(Silence(end - begin, begin, line))
    return sorted(silences, key=lambda silence: silence.seconds, reverse=True)


def main() -> None:
    """Run the command, and print its longest silences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=int, default=8, metavar="NUMBER", help="how many silences are printed")
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep what the command writes")
    parser.add_argument("--terminal", action="store_true", help="run the command in a terminal, not in pipes")
    parser.add_argument("--notebook", action="store_true", help="run the file of a cell in a notebook's kernel")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command, behind --")
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("give a command behind --")
    if command[0] == "limbeck":
        command = [sys.executable, "-m", "limbeck", *command[1:]]

    if options.notebook:
        arrivals, end, code = listen_to_notebook(Path(command[0]).read_text(encoding="utf-8"))
    elif options.log is None:
        arrivals, end, code = listen(command, terminal=options.terminal)
    else:
        with options.log.open("wb") as log:
            arrivals, end, code = listen(command, log, terminal=options.terminal)
    first = f"{arrivals[0].seconds:.1f} s" if arrivals else "never"
    print(f"{end:.1f} s, exit code {code}, first output: {first}")
    for silence in silences_between(arrivals, end)[: options.show]:
        print(f"{silence.seconds:7.1f} s from {silence.begin:7.1f} s, after: {silence.before[:WIDTH]}")


if __name__ == "__main__":
    main()
