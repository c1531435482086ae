"""Runs of a grid: every cell once, on disk as soon as it is finished; the tables and leaderboard files at the end.

The flow: a request becomes tasks, and these the cells of all models (`planning`); what `results.jsonl` has is left out;
of the rest, tokens are made, and cells with the same training are one `SharedTraining`, run in this process or in
several; `grid_summary` makes the tables.
"""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from limbeck.core import folder_lock, studies
from limbeck.core.paths import KEPT_WEIGHTS, RESULTS
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.studies import FINISHED, EvaluationCell
from limbeck.errors import Interrupted, OutputError
from limbeck.evaluation.evaluators.evaluator import ReadyCell
from limbeck.evaluation.evaluators.rows import load_rows
from limbeck.evaluation.plan.planned_model import PlannedModel, plan_models
from limbeck.evaluation.plan.planner import PlannedTask, Planner
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.results.choices import Cells, Choices, choose_all
from limbeck.evaluation.results.submissions import write_submissions
from limbeck.evaluation.results.summary import summarise
from limbeck.evaluation.run import kept_weights
from limbeck.evaluation.run.cell_rows import Provenance, row_of
from limbeck.evaluation.run.output_folder import prepare_folder
from limbeck.evaluation.run.pending import PendingTask, prepare_pending, work_of
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.evaluation.run.trainings import Message, SharedTraining, run_trainings

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
        notes: On each task, by its name.
    """

    tasks: Sequence[PlannedTask]
    cells: Cells
    choices: Choices
    places: Mapping[str, Path | None]
    notes: Mapping[str, Sequence[str]]


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
    planner = Planner(request)
    models = plan_models(request.all_models(), as_is=request.as_is)
    planner.check_models(models)
    overrides = sorted(request.overrides)
    folder = prepare_folder(request.output, preset=request.preset, overrides=overrides, as_is=request.as_is)
    with ExitStack() as stack:
        if request.keep_weights is not None:  # Another process would take candidates for the best away.
            stack.enter_context(folder_lock.folder_lock(folder))
        done = _run_grid(request, planner, folder, models, report)

    summary = summarise(done.cells, done.tasks, models, planner.protocol, done.choices, done.notes)
    if request.as_is:
        summary.as_is = True
    submissions, problems = _write_submissions(folder, done.choices, done.tasks)
    problems += _name_places(folder, summary, done)
    summary.notes += problems
    summary.notes_in_short += problems
    failed = sum(cell.status != FINISHED for cell in done.cells.values())
    return EvaluationOutcome(summary, failed, tuple(submissions), done.choices)


def _run_grid(
    request: EvaluationRequest, planner: Planner, folder: Path, models: Sequence[PlannedModel], report: Report
) -> _Finished:
    """Plan all tasks, and run the cells that are not finished, or whose weights are to be kept and are not there."""
    tasks = []
    for index, name in enumerate(planner.names):
        report(_PLANNING * index / len(planner.names), f"reading {name}", Count(index, "tasks"))
        tasks.append(planner.plan(name, models))

    # Finished cells whose weights are wanted and gone are pending from the start.
    results = ResultsFile(folder)
    cells = _rows_of(results, tasks)
    finished = {cell_id: cell for cell_id, cell in cells.items() if cell.status == FINISHED}
    for cell_id in _without_weights(request.keep_weights, folder, tasks, models, finished):
        del finished[cell_id]
    if request.keep_weights is not None:
        workers = request.workers
        kept_weights.check_room(request.keep_weights, folder, models, tasks, finished, workers)
    pending = [prepare_pending(task, models, finished, request) for task in tasks]
    load_rows.cache_clear()
    _run_pending(request, folder, results, models, pending, part_of(report, _PLANNING, 1.0))

    cells = _rows_of(results, tasks)
    choices = choose_all(cells, tasks, models)
    wanted = kept_weights.wanted_cells(request.keep_weights, tasks, cells, choices)
    if request.keep_weights == "best":
        planned = {cell.id for task in tasks for cell in task.cells}
        kept_weights.remove_weights(folder, planned - wanted)
    places = {cell_id: kept_weights.find_weights(folder, cells[cell_id]) for cell_id in wanted}
    notes = {task.planned.name: task.notes for task in pending}
    return _Finished(tasks, cells, choices, places, notes)


def _rows_of(results: ResultsFile, tasks: Sequence[PlannedTask]) -> dict[str, EvaluationCell]:
    """Return the latest row of each planned cell, by identity; a finished one stands for later failures too."""
    latest = {cell.id: cell for cell in results.read()} | results.finished()
    planned = {cell.id for task in tasks for cell in task.cells}
    return {cell_id: cell for cell_id, cell in latest.items() if cell_id in planned}


def _without_weights(
    keep: str | None,
    folder: Path,
    tasks: Sequence[PlannedTask],
    models: Sequence[PlannedModel],
    finished: Mapping[str, EvaluationCell],
) -> list[str]:
    """Return the identities of finished cells whose weights are or may be wanted, and are not there.

    Args:
        keep: Of which cells weights are kept: `"best"`, `"all"` or None.
        folder: Of the evaluation.
        tasks: The plan.
        models: All models.
        finished: Finished cells, by identity.
    """
    wanted: list[str] = []
    for task, model in itertools.product(tasks if keep is not None else (), models):
        done = [finished[each.id] for each in task.cells_of(model.name) if each.id in finished]
        if keep == "all":
            wanted += [cell.id for cell in done]
        else:
            wanted += kept_weights.candidates(done, task, task.runs)
    trained = {each.id for task in tasks for each in task.cells if kept_weights.is_trained(each.cell)}
    return [
        cell_id
        for cell_id in dict.fromkeys(wanted)
        if cell_id in trained and kept_weights.find_weights(folder, finished[cell_id]) is None
    ]


def _run_pending(
    request: EvaluationRequest,
    folder: Path,
    results: ResultsFile,
    models: Sequence[PlannedModel],
    tasks: Sequence[PendingTask],
    report: Report,
) -> None:
    """Run the cells that are pending, and write a row for each.

    Raises:
        Interrupted: on Ctrl-C.
    """
    model_of = {model.name: model for model in models}
    task_of = {task.planned.name: task for task in tasks}
    keep = folder / KEPT_WEIGHTS if request.keep_weights is not None else None
    trainings = _trainings_of(tasks, model_of, keep)
    provenance = Provenance.here()
    progress = _Progress(trainings, report)

    def received(training: SharedTraining, message: Message) -> None:
        if not isinstance(message, tuple):
            progress.advance(training, message)
            return
        cell_id, outcome = message
        cell = training.cells[cell_id].cell
        row = row_of(
            training,
            cell_id,
            outcome,
            task=task_of[cell.task],
            model=model_of[cell.model],
            preset=request.preset,
            provenance=provenance,
            folder=folder,
        )
        results.append(row)
        if request.keep_weights == "best" and row.status == FINISHED:
            _drop_beaten(folder, results.finished(), cell.model, task_of[cell.task].planned)
        progress.finish_cell(training)

    try:
        run_trainings(trainings, workers=request.workers, received=received)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Stopped; {progress.ended} of {progress.count} cells are done and kept in '{folder}'; the same command "
            "continues from there."
        ) from None


@dataclass
class _Progress:
    """Progress of trainings by their work: some take many times as long as others.

    Args:
        trainings: All trainings.
        report: Receives the progress.
    """

    trainings: Sequence[SharedTraining]
    report: Report
    ended: int = 0
    _shares: dict[str, float] = field(default_factory=dict)
    _unscored: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._unscored = {training.id: len(training.cells) for training in self.trainings}
        self.count = sum(self._unscored.values())
        self._work = sum(training.work for training in self.trainings)

    def advance(self, training: SharedTraining, share: float) -> None:
        """Report the share of a training that is done, 0 to 1."""
        self._report(training, share, f"cell {self.ended + 1} of {self.count}: {training.describe()}")

    def finish_cell(self, training: SharedTraining) -> None:
        """Count a cell, and report its training if it was the last one."""
        self.ended += 1
        self._unscored[training.id] -= 1
        if self._unscored[training.id] == 0:
            self._report(training, 1.0, f"{self.ended} of {self.count} cells done")

    def _report(self, training: SharedTraining, share: float, what: str) -> None:
        self._shares[training.id] = share
        done = sum(each.work * self._shares.get(each.id, 0.0) for each in self.trainings)
        total = min(done / self._work, 1.0)
        self.report(total, what, Count(self.count * total, "cells"))


def _trainings_of(
    tasks: Sequence[PendingTask], models: Mapping[str, PlannedModel], keep: Path | None
) -> list[SharedTraining]:
    """Return the trainings of pending cells; cells of several tasks may share one.

    Args:
        tasks: With their pending cells.
        models: By name.
        keep: Folder in which the weights of each cell are kept by its identity; None keeps none.
    """
    cells_of_training: dict[str, dict[str, ReadyCell]] = {}
    evaluators: dict[str, str] = {}
    for task in tasks:
        for planned in task.cells:
            save = None if keep is None else partial(kept_weights.save_weights, keep / planned.id)
            ready = ReadyCell(planned.cell, task.prepared[models[planned.cell.model].tokenizer], save)
            # Two names of one model share their cells.
            cells_of_training.setdefault(planned.training, {}).setdefault(planned.id, ready)
            evaluators[planned.training] = task.evaluator.name
    return [
        SharedTraining(training, evaluators[training], cells, work_of(cells.values(), models))
        for training, cells in cells_of_training.items()
    ]


def _drop_beaten(folder: Path, finished: Mapping[str, EvaluationCell], model: str, task: PlannedTask) -> None:
    """Remove the kept weights of cells that can no longer be the best of their model and task."""
    done = [finished[planned.id] for planned in task.cells_of(model) if planned.id in finished]
    candidates = kept_weights.candidates(done, task, task.runs)
    kept_weights.remove_weights(folder, {cell.id for cell in done} - candidates)


def _name_places(folder: Path, summary: studies.Evaluation, done: _Finished) -> list[str]:
    """Name the folders of kept weights in the summary; return a line for each cell whose weights could not be kept."""
    chosen = {model.name: model.chosen for model in summary.models}
    names = {task.name: task.task.name for task in done.tasks}
    for (model, task), choice in done.choices.items():
        place = done.places.get(choice.best.id)
        if place is not None:
            chosen[model][names[task]].weights = place.relative_to(folder).as_posix()
    problems = []
    for cell_id, place in done.places.items():
        if place is None:
            cell = done.cells[cell_id]
            problems.append(
                f"The weights of {cell.model} on {cell.task}, seed {cell.seed}, could not be kept: the last line of "
                f"{RESULTS} with their `id` says why."
            )
    return problems


def _write_submissions(folder: Path, choices: Choices, tasks: Sequence[PlannedTask]) -> tuple[list[Path], list[str]]:
    """Write the files for leaderboards; a file that cannot be written is named in a note."""
    written: list[Path] = []
    problems: list[str] = []
    task_of = {task.name: task for task in tasks}
    for (model, name), choice in choices.items():
        task = task_of[name]
        try:
            written += write_submissions(folder, model, task.task, choice.cells, task.metric)
        except OutputError as error:
            problems.append(f"The leaderboard file of {model} on {task.task.title} could not be written: {error}")
    return written, problems
