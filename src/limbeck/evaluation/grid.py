"""`run_evaluation`: from a request to tables' content, cell by cell, resumable."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from limbeck.core.files import atomic_text, default_cache_dir
from limbeck.core.folders import FolderKind, claim, writing
from limbeck.core.machine import bf16_is_fast, git_commit, hardware, versions
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.workers import Send, run_tasks
from limbeck.errors import Interrupted, LimbeckError, OutputError
from limbeck.evaluation.encoding import PreparedCell
from limbeck.evaluation.fine_tuning import CellResult, Share, select_split, train_once
from limbeck.evaluation.grid_plan import (
    EvaluationRequest,
    PlannedModel,
    PlannedTask,
    Planner,
    parse_overrides,
    plan_models,
    work_of,
)
from limbeck.evaluation.grid_summary import FAILED, FINISHED, Row, Summary, choose, select_score, summarise
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.evaluation.submission import read_predictions, save_predictions, write_submission
from limbeck.evaluation.tasks import Task

RESULTS = "results.jsonl"


class ResultsFile:
    """The rows of all cells that ever ran in a folder.

    Args:
        folder: Of the evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS

    def read(self) -> list[Row]:
        """Return the rows, in order; a line that was not written to its end is passed over.

        Raises:
            OutputError: if the file cannot be read.
        """
        if not self._path.exists():
            return []
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError as error:
            raise OutputError(f"'{self._path}' cannot be read: {error.strerror}.") from None
        rows = (_parse(line) for line in lines)
        return [row for row in rows if row is not None]

    def finished(self) -> dict[str, Row]:
        """Return the finished cells by their identity."""
        return {row["id"]: row for row in self.read() if row.get("status") == FINISHED}

    def append(self, row: Row) -> None:
        """Write a row and wait until it is on disk.

        Raises:
            OutputError: if it cannot be written.
        """
        line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
        try:
            with self._path.open("ab") as file:
                # A line that an earlier process left unfinished must not swallow this one.
                torn = file.tell() > 0 and not self._ends_with_newline()
                file.write((b"\n" if torn else b"") + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(f"'{self._path}' cannot be written: {error.strerror}.") from None

    def _ends_with_newline(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _parse(line: bytes) -> Row | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("id"), str) else None


# The folder of an evaluation: made by one preset and its overrides, and by no other.


MANIFEST = "evaluation.json"
SUBMISSIONS = "submissions"


def prepare_folder(folder: Path, *, preset: str, overrides: list[str]) -> Path:
    """Make or take up the folder of an evaluation. Models, tasks and seeds may be added to it.

    The first cell binds it to its preset and settings: what was refused before one ran does not.

    Args:
        folder: The folder.
        preset: Name of the protocol.
        overrides: What was set otherwise.

    Returns:
        The folder.

    Raises:
        OutputError: if it is a file, holds something else or an evaluation by other settings, or cannot be written.
    """
    folder = folder.expanduser()
    asked = {"preset": preset, "set": overrides}
    claim(folder, _EVALUATION, asked)
    with writing(folder):
        atomic_text(folder / MANIFEST, json.dumps(asked, indent=2) + "\n")
    return folder


def _check_same(folder: Path, saved: dict[str, Any], asked: Mapping[str, Any]) -> None:
    if not ResultsFile(folder).read():
        return
    for key, name in (("preset", "--preset"), ("set", "--set")):
        if saved.get(key) != asked[key]:
            raise OutputError(
                f"The evaluation in '{folder}' has {name} {_shown(saved.get(key))}, not {_shown(asked[key])}; "
                "use the same, or another --output."
            )


_EVALUATION = FolderKind("evaluation", MANIFEST, _check_same)


def _shown(value: Any) -> str:
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value)) or "nothing"


# A training and its cells, tried: a result of each, or why there is none in one line.


Found = TypeVar("Found")


@dataclass(frozen=True)
class Job:
    """A training that is to run, and the cells that it is scored for.

    Attributes:
        id: Identity of the training, or of the one cell where nothing is trained.
        cells: By identity; of one model, grid point and seed.
        work: What it costs, compared with others.
    """

    id: str
    cells: Mapping[str, PreparedCell]
    work: float

    def describe(self) -> str:
        """Return it in a few words, for progress."""
        first, *others = (cell.cell for cell in self.cells.values())
        return first.describe() + (f"; scored on {', '.join(cell.task for cell in others)} too" if others else "")


@dataclass(frozen=True)
class Failure:
    """Why a cell gave nothing, in one line."""

    problem: str


Outcome = CellResult | Failure


def attempt(job: Job, report: Share) -> Iterator[tuple[str, Outcome]]:
    """Train once and score every cell; yields identity and outcome of each as soon as it is there.

    Whatever goes wrong in the training ends the cells of this job only, and in a cell that cell only.
    """
    trained = _tried(partial(train_once, list(job.cells.values()), report))
    for identity, cell in job.cells.items():
        yield identity, trained if isinstance(trained, Failure) else _tried(partial(trained.score, cell))


def _tried(action: Callable[[], Found]) -> Found | Failure:
    try:
        return action()
    except LimbeckError as error:
        return Failure(" ".join(str(error).split()))
    except Exception as error:  # A fault in one cell must not take the night's other cells with it.
        return Failure(" ".join(f"{type(error).__name__}: {error}".split()))


# Running jobs: one by one in this process, or in several processes, each with its share of cores and its own GPU.


Finished = Callable[[Job, str, Outcome], None]
"""Is given a job, the identity of one of its cells, and the outcome."""
Advance = Callable[[dict[str, float], Job], None]
"""Is told which share of each running job is done, by identity, and which job moved."""


def run_jobs(jobs: Sequence[Job], *, workers: int, finished: Finished, advance: Advance) -> None:
    """Run jobs; the outcome of each cell is handed over as soon as it is there.

    A Trainer that sees several GPUs would spread its batch over them, so on such a machine even a single worker has a
    process of its own.

    Args:
        jobs: In this order.
        workers: Processes; 1 runs them in this one.
        finished: Is given each outcome.
        advance: Is told how far the running jobs are.
    """
    if workers == 1 and torch.cuda.device_count() <= 1:
        for job in jobs:
            shares = {job.id: 0.0}

            def report(share: float, job: Job = job, shares: dict[str, float] = shares) -> None:
                shares[job.id] = share
                advance(shares, job)

            report(0.0)
            for identity, outcome in attempt(job, report):
                finished(job, identity, outcome)
        return
    running: dict[str, float] = {}
    left = {job.id: dict.fromkeys(job.cells) for job in jobs}

    def received(job: Job, message: float | tuple[str, Outcome]) -> None:
        if isinstance(message, float):
            running[job.id] = message
            advance(running, job)
            return
        identity, outcome = message
        del left[job.id][identity]
        if not left[job.id]:
            running.pop(job.id, None)
        finished(job, identity, outcome)

    def ended(job: Job, problem: str | None) -> None:
        running.pop(job.id, None)
        for identity in left.pop(job.id):
            finished(job, identity, Failure(problem or "It has no outcome."))

    run_tasks(_run_job, jobs, workers=workers, received=received, ended=ended)


def _run_job(job: Job, send: Send) -> None:
    for outcome in attempt(job, lambda share: send(float(share))):
        send(outcome)


_PLANNING = 0.05
"""Share of the progress that loading and encoding the tasks is given; nobody knows how long it takes."""


@dataclass(frozen=True)
class EvaluationOutcome:
    """What an evaluation leaves.

    Attributes:
        summary: The content of its tables.
        folder: With `results.jsonl`, predictions and submissions.
        failed: How many of its cells gave nothing.
        submissions: Files for leaderboards.
    """

    summary: Summary
    folder: Path
    failed: int
    submissions: tuple[Path, ...]


def run_evaluation(request: EvaluationRequest, report: Report = no_progress) -> EvaluationOutcome:
    """Evaluate models on tasks; cells that are finished in the output folder are not run again.

    Args:
        request: What to evaluate.
        report: Is told how far it is.

    Raises:
        RecipeError: for an unknown task, preset or setting.
        CorpusError: for a task whose rows are not there, or cannot be read.
        ModelError: for a model that is not there.
        OutputError: for a folder that cannot be used.
        Interrupted: if the user stopped it; what was finished is kept.
    """
    names = request.task_names()
    overrides = parse_overrides(request.overrides, request.short_names())
    protocol = PROTOCOLS[request.preset]
    for task in request.tasks_asked():
        protocol.settings(task, overrides)  # Refused before anything is downloaded.
    models = plan_models(request.all_models())
    folder = prepare_folder(request.output, preset=protocol.name, overrides=sorted(request.overrides))
    results = ResultsFile(folder)
    planner = Planner(
        models=models,
        protocol=protocol,
        overrides=overrides,
        seeds=request.seeds,
        data=request.data,
        cache_dir=default_cache_dir(),
        bf16=torch.accelerator.is_available() and bf16_is_fast(),
        finished=frozenset(results.finished()),
    )
    tasks = []
    for index, name in enumerate(names):
        report(_PLANNING * index / len(names), f"reading {name}", Count(index, "tasks"))
        tasks.append(planner.plan(name))
    run = _Run(request, folder, results, models, tasks, part_of(report, _PLANNING, 1.0))
    run.carry_out()
    planned = {cell.id for task in tasks for cell in task.cells}
    # The latest word on a cell: a failed one may have been tried again.
    rows = {row["id"]: row for row in results.read() if row["id"] in planned}
    rows |= {key: row for key, row in results.finished().items() if key in planned}
    summary = summarise(rows, tasks, models, protocol, seed_count=request.seeds)
    submissions, problems = _submissions(folder, rows, tasks, models)
    for kind in ("notes", "notes_in_short"):
        summary[kind] = [*summary[kind], *problems]
    return EvaluationOutcome(
        summary=summary,
        folder=folder,
        failed=sum(row["status"] != FINISHED for row in rows.values()),
        submissions=tuple(submissions),
    )


class _Run:
    """Carries out what is left of a plan."""

    def __init__(
        self,
        request: EvaluationRequest,
        folder: Path,
        results: ResultsFile,
        models: Sequence[PlannedModel],
        tasks: Sequence[PlannedTask],
        report: Report,
    ) -> None:
        self._workers = request.workers
        self._preset = request.preset
        self._folder = folder
        self._results = results
        self._models = {model.name: model for model in models}
        self._tasks = {task.name: task for task in tasks}
        self._report = report
        self._jobs = self._unfinished()
        self._work = {job.id: job.work for job in self._jobs}
        self._total = sum(self._work.values()) or 1.0
        self._cells = sum(len(job.cells) for job in self._jobs)
        self._open = {job.id: len(job.cells) for job in self._jobs}
        self._ended = 0
        self._ended_work = 0.0
        self._provenance = {"versions": versions(), "commit": git_commit(), "device": hardware()["device"]}

    def carry_out(self) -> None:
        """Run all jobs.

        Raises:
            Interrupted: on Ctrl-C.
        """
        try:
            run_jobs(self._jobs, workers=self._workers, finished=self._finished, advance=self._advance)
        except KeyboardInterrupt:
            raise Interrupted(
                f"Stopped; {self._ended} of {self._cells} cells are done and kept in '{self._folder}'; the same "
                "command goes on from there."
            ) from None

    def _unfinished(self) -> list[Job]:
        done = self._results.finished()
        cells: dict[str, dict[str, PreparedCell]] = {}
        for task in self._tasks.values():
            for planned in task.cells:
                if planned.id not in done:  # Two names of one model share their cells.
                    prepared = task.prepared[self._models[planned.cell.model].tokenizer]
                    cells.setdefault(planned.training, {}).setdefault(planned.id, PreparedCell(planned.cell, prepared))
        return [Job(training, shared, self._work_of(shared)) for training, shared in cells.items()]

    def _work_of(self, cells: dict[str, PreparedCell]) -> float:
        return work_of(cells.values(), self._models[next(iter(cells.values())).cell.model].shape)

    def _advance(self, shares: dict[str, float], job: Job) -> None:
        running = sum(self._work[identity] * share for identity, share in shares.items())
        what = f"cell {self._ended + 1} of {self._cells}: {job.describe()}"
        cells = self._ended + sum(self._open[identity] * share for identity, share in shares.items())
        self._report(min((self._ended_work + running) / self._total, 1.0), what, Count(cells, "cells"))

    def _finished(self, job: Job, identity: str, outcome: Outcome) -> None:
        self._results.append(self._row(job, identity, outcome))
        self._ended += 1
        self._open[job.id] -= 1
        if not self._open[job.id]:
            self._ended_work += job.work
            what, cells = f"{self._ended} of {self._cells} cells done", Count(self._ended, "cells")
            self._report(self._ended_work / self._total, what, cells)

    def _row(self, job: Job, identity: str, outcome: Outcome) -> Row:
        cell, prepared = job.cells[identity]
        task = self._tasks[cell.task]
        row: Row = {
            "id": identity,
            "training": job.id,
            "status": FINISHED if isinstance(outcome, CellResult) else FAILED,
            "model": cell.model,
            "model_fingerprint": self._models[cell.model].fingerprint,
            "task": task.task.name,
            "data_fingerprint": task.data,
            "preset": self._preset,
            "settings": asdict(cell.point),
            "seed": cell.seed,
            "select": select_split(prepared),
        }
        if isinstance(outcome, CellResult):
            row |= {
                "scores": {split: _finite(scores) for split, scores in outcome.scores.items()},
                "epoch": outcome.epoch,
                "rows": dict(outcome.rows),
                "seconds": outcome.seconds,
                "training_seconds": outcome.training_seconds,
                "predictions": save_predictions(self._folder, identity, outcome.predictions),
                "notes": list(task.notes),
            }
        else:
            row["error"] = outcome.problem
        return {**row, **self._provenance, "created": datetime.now(UTC).isoformat(timespec="seconds")}


def _finite(scores: Any) -> dict[str, float | None]:
    """Scores as JSON knows them: a threshold may be infinite."""
    return {metric: float(value) if math.isfinite(value) else None for metric, value in scores.items()}


def write_submissions(folder: Path, model: str, task: Task, rows: Sequence[Row], metric: str) -> list[Path]:
    """Write the leaderboard files of a model on a task, by the best run of its chosen grid point.

    Args:
        folder: Of the evaluation.
        model: As the user named it; its files go to a folder of its own.
        task: The task.
        rows: The finished runs of the chosen point.
        metric: By which the best is chosen on the select split.

    Returns:
        The files; none where nothing was predicted.

    Raises:
        OutputError: if the saved predictions are missing or damaged.
    """
    predicted = [row for row in rows if row.get("predictions")]
    if not predicted:
        return []
    best = max(predicted, key=lambda row: select_score(row, metric))
    saved = read_predictions(folder / best["predictions"])
    home = folder / SUBMISSIONS / (re.sub(r"[^\w.-]+", "-", model).strip("-.") or "model")
    return [write_submission(task, split, found, home) for split, found in saved.items() if split in task.predicted]


def _submissions(
    folder: Path, rows: dict[str, Row], tasks: Sequence[PlannedTask], models: Sequence[PlannedModel]
) -> tuple[list[Path], list[str]]:
    """Write the files for leaderboards; what cannot be written costs that file only, and is told in a note."""
    written: list[Path] = []
    problems: list[str] = []
    for task in tasks:
        for model in models:
            own = [rows[c.id] for c in task.cells if c.cell.model == model.name and c.id in rows]
            done = [row for row in own if row["status"] == FINISHED]
            choice = choose(done, task.task, task.settings, runs=task.settings.seeds)
            if choice is not None:
                metric = task.settings.metric or task.task.metrics[0]
                try:
                    written += write_submissions(folder, model.name, task.task, choice.rows, metric)
                except OutputError as error:
                    problems.append(
                        f"The leaderboard file of {model.name} on {task.task.title} could not be written: {error}"
                    )
    return written, problems
