"""Trials in a forked process that may hang, swell or die: its place is taken by another, which goes on behind."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from benchmarks.chaos_inputs.kinds import KINDS, maker_of
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import HANG, MEMORY, Verdict, judge

MEMORY_LIMIT = 3 * 2**30
"""Bytes that a process may take beyond what it has at its start."""
_GRACE_SECONDS = 20.0
"""Beyond the limit of a trial, for code that hears no alarm."""


def try_one(seed: int, kind: str, number: int, scene: Scene, parent: Path) -> Verdict:
    """Make an input and try it.

    Args:
        seed: Of the whole run.
        kind: Key of `KINDS`.
        number: Of the input within its kind; the three make the same input again.
        scene: What is good.
        parent: Where the input gets a folder.
    """
    maker, random = maker_of(kind, number), Random(f"{seed} {kind} {number}")
    began = time.monotonic()
    what, verdict, line = judge(lambda folder: KINDS[kind].makers[maker](random, scene, folder), parent,
                                KINDS[kind].seconds)  # fmt: skip
    return Verdict(kind, maker, number, what, verdict, line, time.monotonic() - began)


def try_all(seed: int, inputs: Sequence[tuple[str, int]], scene: Scene, parent: Path) -> Iterator[Verdict]:
    """Try inputs one after the other, whatever they do to the process.

    Args:
        seed: Of the whole run.
        inputs: Kind and number of each.
        scene: What is good.
        parent: Where inputs get their folders.
    """
    left = list(inputs)
    context = multiprocessing.get_context("fork")  # Imports and scene are paid for once.
    while left:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(seed, list(left), scene, parent, sender))
        process.start()
        sender.close()
        while left:
            kind, number = left[0]
            ending = _next(receiver, KINDS[kind].seconds + _GRACE_SECONDS)
            if isinstance(ending, Verdict):
                left.pop(0)
                yield ending
                continue
            process.kill()
            process.join()
            left.pop(0)
            line = "no sign of life" if ending == HANG else f"the process ended with {process.exitcode}"
            yield Verdict(kind, maker_of(kind, number), number, "", ending, line)
            break
        receiver.close()
        process.join()


def _next(receiver: Connection, seconds: float) -> Verdict | str:
    """The next verdict; `HANG` if none comes, `MEMORY` if the process is gone."""
    try:
        return receiver.recv() if receiver.poll(seconds) else HANG
    except EOFError:
        return MEMORY


def _work(seed: int, inputs: Sequence[tuple[str, int]], scene: Scene, parent: Path, sender: Connection) -> None:
    """What the process does."""
    os.chdir(parent)
    bound_memory(MEMORY_LIMIT)
    for kind, number in inputs:
        sender.send(try_one(seed, kind, number, scene, parent))


def bound_memory(room: int) -> None:
    """Let the process have no more address space than now and so many bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
