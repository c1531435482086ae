"""Runs of a grid: every cell once, on disk as soon as it is finished; the tables and leaderboard files at the end.

The flow: a request becomes a plan of cells (`grid_plan`); what `results.jsonl` has is left out; of the rest, cells with
the same training are one `SharedTraining`, run in this process or in several; `grid_summary` makes the tables.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.core import folders, machine, paths, records, studies
from limbeck.core.paths import RESULTS
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.studies import FAILED, FINISHED, EvaluationCell
from limbeck.errors import Interrupted, OutputError
from limbeck.evaluation import encoding, grid_plan, kept_weights
from limbeck.evaluation.cell import Cell, TrainingPoint, settings_of
from limbeck.evaluation.fine_tuning import changed_keywords, select_split
from limbeck.evaluation.grid_summary import Cells, Choices, choose_all, summarise
from limbeck.evaluation.output_folder import prepare_folder
from limbeck.evaluation.predictions import save_predictions
from limbeck.evaluation.request import EvaluationRequest
from limbeck.evaluation.results_file import ResultsFile
from limbeck.evaluation.running import Failure, Message, Outcome, SharedTraining, run_trainings
from limbeck.evaluation.submissions import write_submissions

_PLANNING = 0.05
"""Share of the progress that loading and encoding the tasks is given; nobody knows how long it takes."""


@dataclass(frozen=True)
class EvaluationOutcome:
    """Result of an evaluation.

    Attributes:
        summary: The content of its tables.
        failed: Number of its cells that gave nothing.
        submissions: Files for leaderboards.
        choices: The grid points that stand for the models on the tasks.
    """

    summary: studies.Evaluation
    failed: int
    submissions: tuple[Path, ...]
    choices: Choices


@dataclass(frozen=True)
class _Finished:
    """A grid that is done as far as it can be.

    Attributes:
        tasks: The plan.
        cells: The latest row of each of its cells, by identity.
        choices: The chosen grid points.
        places: By identity the folders of the weights that are to be kept; None where they could not be.
    """

    tasks: Sequence[grid_plan.PlannedTask]
    cells: Cells
    choices: Choices
    places: Mapping[str, Path | None]


def run_evaluation(request: EvaluationRequest, report: Report = no_progress) -> EvaluationOutcome:
    """Evaluate models on tasks; cells that are finished in the output folder are not run again.

    Args:
        request: Models, tasks and settings.
        report: Receives the progress.

    Raises:
        RecipeError: for an unknown task, preset or setting.
        CorpusError: for a task whose rows are not there, or cannot be read.
        ModelError: for a model that is not there.
        OutputError: for a folder that cannot be used.
        Interrupted: if the user stopped it; finished cells are kept.
    """
    planner = grid_plan.Planner(request)
    models = grid_plan.plan_models(request.all_models(), as_is=request.as_is)
    planner.check_models(models)
    overrides = sorted(request.overrides)
    folder = prepare_folder(request.output, preset=request.preset, overrides=overrides, as_is=request.as_is)
    with ExitStack() as held:
        if request.keep_weights is not None:  # Another process would take candidates for the best away.
            held.enter_context(folders.folder_lock(folder))
        done = _finish_all(request, planner, folder, models, report)
    summary = summarise(done.cells, done.tasks, models, planner.protocol, done.choices)
    if request.as_is:
        summary.as_is = True
    submissions, problems = _write_submissions(folder, done.choices, done.tasks)
    problems += _name_places(folder, summary, done)
    summary.notes += problems
    summary.notes_in_short += problems
    failed = sum(cell.status != FINISHED for cell in done.cells.values())
    return EvaluationOutcome(summary, failed, tuple(submissions), done.choices)


def _name_places(folder: Path, summary: studies.Evaluation, done: _Finished) -> list[str]:
    """Name the folders of kept weights in the summary; return a line for each cell whose weights could not be kept."""
    chosen = {model.name: model.chosen for model in summary.models}
    names = {task.name: task.task.name for task in done.tasks}
    for (model, task), choice in done.choices.items():
        if (place := done.places.get(choice.best.id)) is not None:
            chosen[model][names[task]].weights = place.relative_to(folder).as_posix()
    lacking = (done.cells[identity] for identity, place in done.places.items() if place is None)
    return [
        f"The weights of {cell.model} on {cell.task}, seed {cell.seed}, could not be kept: the last line of {RESULTS} "
        "with their `id` says why."
        for cell in lacking
    ]


def _finish_all(
    request: EvaluationRequest,
    planner: grid_plan.Planner,
    folder: Path,
    models: Sequence[grid_plan.PlannedModel],
    report: Report,
) -> _Finished:
    """Run what is missing: cells, and then finished ones whose weights are to be kept and are not there."""
    results, keep = ResultsFile(folder), request.keep_weights
    missing: set[str] = set()
    tried: set[str] = set()
    while True:
        finished, tasks = {key: cell for key, cell in results.finished().items() if key not in missing}, []
        for index, name in enumerate(planner.names):
            report(_PLANNING * index / len(planner.names), f"reading {name}", Count(index, "tasks"))
            tasks.append(planner.plan(name, models, finished))
        if keep is not None and not tried:
            kept_weights.check_room(keep, folder, models, tasks, finished, request.workers)
        _carry_out(request, folder, finished, results, models, tasks, part_of(report, _PLANNING, 1.0))
        planned = {cell.id for task in tasks for cell in task.cells}
        # The latest word on a cell: a failed one may have been tried again.
        cells = {cell.id: cell for cell in results.read()} | results.finished()
        cells = {identity: cell for identity, cell in cells.items() if identity in planned}
        choices = choose_all(cells, tasks, models)
        wanted = kept_weights.wanted_cells(keep, tasks, cells, choices)
        if keep == "best":
            kept_weights.remove_weights(folder, planned - wanted)
        places = {identity: kept_weights.find_weights(folder, cells[identity]) for identity in wanted}
        missing = {identity for identity, place in places.items() if place is None}
        if missing <= tried:
            return _Finished(tasks, cells, choices, places)
        tried |= missing


def _carry_out(
    request: EvaluationRequest,
    folder: Path,
    finished: Mapping[str, EvaluationCell],
    results: ResultsFile,
    models: Sequence[grid_plan.PlannedModel],
    tasks: Sequence[grid_plan.PlannedTask],
    report: Report,
) -> None:
    """Run the cells of a plan that are not finished, and write a row for each.

    Raises:
        Interrupted: on Ctrl-C.
    """
    model_of, task_of = {model.name: model for model in models}, {task.name: task for task in tasks}
    keep = folder / paths.KEPT_WEIGHTS if request.keep_weights is not None else None
    trainings = _unfinished(finished, model_of, tasks, keep)
    left = {training.id: len(training.cells) for training in trainings}
    shares: dict[str, float] = {}
    count, work = sum(left.values()), sum(training.work for training in trainings)
    provenance: dict[str, Any] = {
        "versions": machine.versions(),
        "commit": machine.git_commit(),
        "device": machine.hardware()["device"],
    }

    def row_of(training: SharedTraining, identity: str, outcome: Outcome) -> EvaluationCell:
        cell, prepared = training.cells[identity]
        task = task_of[cell.task]
        if isinstance(outcome, Failure):
            found: dict[str, Any] = {"error": outcome.problem}
        else:
            predictions = save_predictions(folder, identity, outcome.predictions)
            found = {**vars(outcome), "predictions": predictions, "notes": list(task.notes)}
            for name in (
                "weights",
                "thresholds",
                "intervals",
                "only_answer",
            ):  # Rows of evaluations without them are as they were.
                if found[name] is None:
                    del found[name]
        if isinstance(cell.point, TrainingPoint):
            found["training_arguments"] = changed_keywords(cell.point, cell.seed)
        return EvaluationCell(
            id=identity,
            training=training.id,
            status=FAILED if isinstance(outcome, Failure) else FINISHED,
            model=cell.model,
            model_fingerprint=model_of[cell.model].fingerprint,
            task=task.task.name,
            data_fingerprint=task.data,
            preset=request.preset,
            settings=settings_of(cell.point),
            seed=cell.seed,
            select=select_split(prepared),
            **found,
            **provenance,
            created=records.timestamp(),
        )

    def received(training: SharedTraining, message: Message) -> None:
        if isinstance(message, tuple):
            row = row_of(training, *message)
            results.append(row)
            if request.keep_weights == "best" and row.status == FINISHED:
                _drop_beaten(folder, results.finished(), training.cells[row.id].cell, task_of)
            left[training.id] -= 1
            if left[training.id]:
                return
            ended = count - sum(left.values())
            share, what = 1.0, f"{ended} of {count} cells done"
        else:
            ended = count - sum(left.values())
            share, what = message, f"cell {ended + 1} of {count}: {training.describe()}"
        shares[training.id] = share
        done = min(sum(each.work * shares.get(each.id, 0.0) for each in trainings) / work, 1.0)
        report(done, what, Count(count * done, "cells"))  # By their work: some take many times as long as others.

    try:
        run_trainings(trainings, workers=request.workers, received=received)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Stopped; {count - sum(left.values())} of {count} cells are done and kept in '{folder}'; the same command "
            "continues from there."
        ) from None


def _drop_beaten(
    folder: Path,
    finished: Mapping[str, EvaluationCell],
    cell: Cell,
    tasks: Mapping[str, grid_plan.PlannedTask],
) -> None:
    """Remove the kept weights of cells that can no longer be the best of their model and task."""
    task = tasks[cell.task]
    own = [planned.id for planned in task.cells if planned.cell.model == cell.model and planned.id in finished]
    runs = len({planned.cell.seed for planned in task.cells})
    kept_weights.remove_weights(
        folder, {*own} - kept_weights.candidates([finished[identity] for identity in own], task, runs)
    )


def _unfinished(
    done: Collection[str],
    models: Mapping[str, grid_plan.PlannedModel],
    tasks: Sequence[grid_plan.PlannedTask],
    keep: Path | None,
) -> list[SharedTraining]:
    found: dict[str, dict[str, encoding.PreparedCell]] = {}
    for task in tasks:
        for planned in task.cells:
            if planned.id not in done:  # Two names of one model share their cells.
                prepared = encoding.PreparedCell(planned.cell, task.prepared[models[planned.cell.model].tokenizer])
                found.setdefault(planned.training, {}).setdefault(planned.id, prepared)
    return [
        SharedTraining(training, cells, grid_plan.work_of(cells.values(), models), keep)
        for training, cells in found.items()
    ]


def _write_submissions(
    folder: Path, choices: Choices, tasks: Sequence[grid_plan.PlannedTask]
) -> tuple[list[Path], list[str]]:
    """Write the files for leaderboards; a file that cannot be written is named in a note."""
    written: list[Path] = []
    problems: list[str] = []
    by_name = {task.name: task for task in tasks}
    for (model, name), choice in choices.items():
        task = by_name[name]
        try:
            written += write_submissions(folder, model, task.task, choice.cells, task.metric)
        except OutputError as error:
            problems.append(f"The leaderboard file of {model} on {task.task.title} could not be written: {error}")
    return written, problems
