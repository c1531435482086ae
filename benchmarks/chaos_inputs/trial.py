"""`Trial`: one bad input and its way in; `judge`: what became of it."""

from __future__ import annotations

import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from limbeck.errors import LimbeckError

REFUSED, COUNTED, EQUAL = "refused", "accepted and counted", "accepted, meaning equal"
TRACEBACK, UNCLEAR, SILENT, HANG, MEMORY = "traceback", "unclear", "silent", "hang", "memory"
GOOD, FAULTS = (REFUSED, COUNTED, EQUAL), (TRACEBACK, UNCLEAR, SILENT, HANG, MEMORY)

LONGEST_LINE = 8_000
"""Characters of a refusal."""


@dataclass(frozen=True)
class Trial:
    """A bad input, ready to be given to limbeck.

    Args:
        what: The input in a few words.
        act: Gives it to the function that the command calls, and returns what came of it.
        names: Of these the refusal has to hold one: the key, the value or the file. None asks for any line.
        accepted: Judges what `act` returned: `COUNTED`, `EQUAL` or `SILENT`. Without it nothing may be accepted.
    """

    what: str
    act: Callable[[], Any]
    names: tuple[str, ...] = ()
    accepted: Callable[[Any], str] | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of an input.

    Attributes:
        kind: Of the input.
        maker: What made it.
        number: Its number within the kind; with the seed it makes the input again.
        what: The input in a few words.
        verdict: One of `GOOD` or `FAULTS`.
        line: The refusal, or the end of the traceback.
        seconds: How long it took.
    """

    kind: str
    maker: str
    number: int
    what: str
    verdict: str
    line: str = ""
    seconds: float = field(default=0.0, compare=False)


class TooLongError(BaseException):
    """The time of an input is up; no handler for ordinary errors may swallow it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooLongError` in the main thread when the time is up."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A folder of the input's own, inside one that has to stay as it is; both go afterwards."""
    with tempfile.TemporaryDirectory(dir=parent) as outer:
        inner = Path(outer, "given", "here")
        inner.mkdir(parents=True)
        yield inner


def strays(folder: Path) -> list[str]:
    """What lies beside the folder of an input: files that left it."""
    outer = folder.parents[1]
    return [str(path.relative_to(outer)) for path in outer.rglob("*") if folder not in (path, *path.parents)
            and path != folder.parent]  # fmt: skip


def judge(make: Callable[[Path], Trial], parent: Path, seconds: float) -> tuple[str, str, str]:
    """Make an input and try it.

    Args:
        make: Makes it in a folder.
        parent: Where that folder is made.
        seconds: Limit for the trial.

    Returns:
        What was tried, the verdict, and its line.
    """
    with own_folder(parent) as folder:
        trial = make(folder)
        try:
            with time_limit(seconds):
                found = trial.act()
                verdict = SILENT if trial.accepted is None else trial.accepted(found)
            line = "" if verdict in GOOD else f"gave {str(found)[:200]!r}"
        except LimbeckError as error:
            line = str(error)
            verdict = REFUSED if is_clear(line, trial.names) else UNCLEAR
        except TooLongError:
            verdict, line = HANG, f"more than {seconds:g} s"
        except MemoryError:
            verdict, line = MEMORY, "MemoryError"
        except Exception:
            verdict, line = TRACEBACK, " | ".join(traceback.format_exc().strip().splitlines()[-5:])
        if left := strays(folder):
            verdict, line = SILENT, f"wrote outside of its folder: {left}"
    return trial.what, verdict, line


def is_clear(line: str, names: tuple[str, ...]) -> bool:
    """Whether a refusal is one printable line of bounded length that names what is wrong."""
    return line.isprintable() and 0 < len(line) <= LONGEST_LINE and (not names or any(name in line for name in names))
