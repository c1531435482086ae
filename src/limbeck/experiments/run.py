"""`run_evaluation`: from a request to tables' content, cell by cell, resumable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from limbeck.core.files import default_cache_dir
from limbeck.core.machine import git_commit, hardware, versions
from limbeck.core.progress import Count, Report, part_of, quietly
from limbeck.errors import Interrupted, OutputError
from limbeck.evaluation.encoding import PreparedCell
from limbeck.evaluation.fine_tuning import CellResult, select_split
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.experiments.attempt import Job, Outcome
from limbeck.experiments.choosing import choose
from limbeck.experiments.folder import prepare_folder
from limbeck.experiments.overrides import parse_overrides
from limbeck.experiments.plan import PlannedModel, PlannedTask, Planner, plan_models, work_of
from limbeck.experiments.predictions_files import save_predictions, write_submissions
from limbeck.experiments.request import EvaluationRequest
from limbeck.experiments.results import FAILED, FINISHED, ResultsFile, Row
from limbeck.experiments.summary import Summary, summarise
from limbeck.experiments.workers import run_jobs
from limbeck.recipe.training_arguments import bf16_is_fast

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


def run_evaluation(request: EvaluationRequest, report: Report = quietly) -> EvaluationOutcome:
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
