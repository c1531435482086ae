"""Rounds of a job: killed again and again, each attempt going on, until one comes to its end; then compared."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .attempt import Attempt, Death, attempt, in_child, strays
from .job import Job

MOST_IN_A_ROUND = 4
MOVED_SHARE = 0.5
"""Of the kills of jobs that may move, after how many the next attempt is elsewhere."""
_SHOWN_CHARACTERS = 60
_VICTIMS = ("process", "process", "all")
_VICTIMS_WITH_WORKERS = ("process", "all", "worker")


@dataclass(frozen=True)
class Reference:
    """A job that was never killed.

    Args:
        seconds: It took.
        first_progress: Seconds until its first progress.
        operations: Times its main process changed a file.
        outcome: What it came to.
    """

    seconds: float
    first_progress: float
    operations: int
    outcome: Mapping[str, Any]


@dataclass
class Found:
    """What rounds of a job came to.

    Args:
        kills: A row for each.
        endings: Rounds that came to their end.
        differences: What was not as in the job that was never killed.
        lost: Finished results that were gone, or made again.
        failures: Attempts that failed by themselves.
        strays: Processes that outlived theirs.
    """

    kills: list[dict[str, Any]] = field(default_factory=list)
    endings: int = 0
    differences: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    strays: int = 0


def never_killed(job: Job, work: Path) -> Reference:
    """Run a job once, from its inputs to its end.

    Args:
        job: The job.
        work: Its place, new; rounds are in the same one, since some results name their folder.

    Raises:
        RuntimeError: if it fails.
    """
    (work / "inputs").mkdir(parents=True)
    in_child(job.prepare, work / "inputs")
    place = _clean(work)
    done = attempt(job, work / "inputs", place / "own", work / "notes" / "whole", Death(), random.Random())
    if done.exit_code != 0:
        raise RuntimeError(f"{job.kind}, {job.name}: {done.complaint}")
    first, operations = done.seconds_to(job.progress), int(done.events[-1].detail)
    assert first is not None, f"{job.name} made no progress"
    return Reference(done.seconds, first, operations, in_child(job.outcome, place / "own"))


@dataclass(frozen=True)
class Case:
    """A job to kill.

    Args:
        job: The job.
        work: As for `never_killed`.
        reference: What it should come to.
        dice: Decides how each attempt dies.
    """

    job: Job
    work: Path
    reference: Reference
    dice: random.Random


def run_round(case: Case, number: int, most: int, found: Found, tell: Callable[[dict[str, Any]], None]) -> None:
    """Begin a job anew, kill it up to so many times, let it end, and compare.

    Args:
        case: The job.
        number: Of the round; odd ones begin with a kill at a file operation.
        most: Kills.
        found: Takes what is found.
        tell: Told of each kill.
    """
    job, work = case.job, case.work
    place, inputs = _clean(work), work / "inputs"
    groups: list[int] = []
    kept: Mapping[str, Any] = {}
    kills: list[dict[str, Any]] = []
    while True:
        by_file = (number + len(groups)) % 2 == 1
        death = _draw(case, by_file) if len(kills) < most else Death()
        notes = work / "notes" / f"{number}-{len(groups)}"
        tried = attempt(job, inputs, place / "own", notes, death, case.dice)
        groups.append(tried.process)
        before, kept = kept, in_child(job.kept, place / "own")
        lost = [*job.lost(before, tried.events, kept), *job.lost(tried.kept, [], kept)]
        found.lost += [f"{job.name}, round {number}: {name}" for name in dict.fromkeys(lost)]
        if kills and kills[-1]["recovery_seconds"] is None:
            kills[-1]["recovery_seconds"] = _rounded(tried.seconds_to(job.progress))
        if not tried.landed:
            break
        kills.append({"kind": job.kind, "job": job.name, "round": number, **_describe(tried), "kept": len(kept)})
        if job.moves and case.dice.random() < MOVED_SHARE:
            place, inputs = _move(work, place, inputs, len(groups))
            kills[-1]["moved"] = True
        tell(kills[-1])
    found.kills += kills
    found.strays += strays(groups)
    if tried.exit_code != 0:
        found.failures.append(f"{job.name}, round {number}: {tried.complaint}")
        return
    found.endings += 1
    outcome = in_child(job.outcome, place / "own")
    differ = differences(case.reference.outcome, outcome)
    found.differences += [f"{job.name}, round {number}: {one}" for one in differ]


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """Name the places where two plain values differ, at any depth."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        keys = sorted({*expected, *found})
        return [one for key in keys for one in differences(expected.get(key), found.get(key), f"{place}.{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [one for number, pair in pairs for one in differences(*pair, f"{place}.{number}")]
    return [] if expected == found else [f"{place.lstrip('.')}: {found!r:.80}, not {expected!r:.80}"]


def _clean(work: Path) -> Path:
    """An empty place for a run, with the caches and temporary files of that run."""
    for old in (*work.glob("place*"), *work.glob("inputs-*")):
        shutil.rmtree(old)
    place = work / "place"
    place.mkdir()
    return place


def _move(work: Path, place: Path, inputs: Path, number: int) -> tuple[Path, Path]:
    """Move a run with its cache, and copy its inputs as a plain copier does, without dates."""
    copied = work / f"inputs-{number}"
    shutil.copytree(inputs, copied, copy_function=shutil.copy)
    if inputs.name != "inputs":
        shutil.rmtree(inputs)
    return place.rename(work / f"place-{number}"), copied


def _draw(case: Case, by_file: bool) -> Death:
    """A file operation, or a time, anywhere in the job."""
    if by_file:
        return Death(operation=case.dice.randint(1, case.reference.operations))
    victims: Sequence[str] = _VICTIMS_WITH_WORKERS if case.job.workers else _VICTIMS
    return Death(seconds=case.dice.uniform(0, case.reference.seconds), victim=case.dice.choice(victims))


def _describe(tried: Attempt) -> dict[str, Any]:
    """The row of a kill."""
    dies = next((event for event in tried.events if event.name == "dies"), None)
    before = [event for event in tried.events if event.name != "dies"]
    return {
        "way": "time" if dies is None else "file operation",
        "after_seconds": round(tried.seconds, 3),
        "operation": None if dies is None else dies.detail,
        "killed": tried.killed,
        "where": str(before[-1])[:_SHOWN_CHARACTERS] if before else "start",
        "recovery_seconds": None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
