"""`run_evaluation`: run every cell of an evaluation once, then make the tables and the files for leaderboards.

A *cell* is one model on one task, at one grid point and with one seed; its *identity* is a hash of all that its result
depends on. The steps:

1. `plan.planner` turns the request into tasks with their cells.
2. Cells with a finished row in `results.jsonl` are not run again; for the others tokens are made (`pending`).
3. Cells with the same fine-tuning become one `SharedTraining`, run in this process or in several (`trainings`). Each
   cell's row is written as soon as the cell is done.
4. `results.choices` chooses a grid point for each model and task, and `results.summary` makes the tables.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from limbeck.core import folder_lock, studies
from limbeck.core.folders import unused_removed
from limbeck.core.paths import KEPT_WEIGHTS, LOCK, RESULTS
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.studies import FINISHED, EvaluationCell
from limbeck.errors import Interrupted, OutputError
from limbeck.evaluation.evaluators.evaluator import ReadyCell
from limbeck.evaluation.evaluators.rows import load_rows
from limbeck.evaluation.plan.planned_model import PlannedModel, plan_models
from limbeck.evaluation.plan.planner import PlannedTask, Planner
from limbeck.evaluation.plan.request import EVALUATION, EvaluationRequest
from limbeck.evaluation.results.choices import Cells, Choices, choose_all, has_metrics
from limbeck.evaluation.results.submissions import folder_names, write_submissions
from limbeck.evaluation.results.summary import summarise
from limbeck.evaluation.run import kept_weights
from limbeck.evaluation.run.cell_rows import Provenance, row_of
from limbeck.evaluation.run.output_folder import prepare_folder
from limbeck.evaluation.run.pending import PendingTask, prepare_pending, work_of
from limbeck.evaluation.run.progress import GridProgress, describe_score
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.evaluation.run.trainings import Message, ShareDone, SharedTraining, run_trainings

_PLANNING = 0.05
"""Share of the progress bar for loading and encoding the tasks, a guess."""


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
    """The state after all cells have run, some of which may have failed.

    Attributes:
        tasks: The tasks with their planned cells.
        cells: The latest row of each cell, by identity.
        choices: The chosen grid point for each model and task.
        weight_folders: Folder of the weights of each cell whose weights were to be kept, by identity; None where they
            could not be kept.
        notes: Notes on each task, by its name.
    """

    tasks: Sequence[PlannedTask]
    cells: Cells
    choices: Choices
    weight_folders: Mapping[str, Path | None]
    notes: Mapping[str, Sequence[str]]


def run_evaluation(request: EvaluationRequest, report: Report = no_progress) -> EvaluationOutcome:
    """Evaluate models on tasks; cells that are finished in the output folder are not run again.

    A new output folder is removed after a mistake in what was asked, if no cell has run.

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
    is_new = not request.output.expanduser().exists()
    folder = prepare_folder(request.output, preset=request.preset, overrides=overrides, as_is=request.as_is)
    with ExitStack() as stack:
        if request.keep_weights is not None:
            # A second process in the same folder would delete weights that may still be the best here.
            stack.enter_context(folder_lock.folder_lock(folder))
        if is_new:
            stack.enter_context(unused_removed(folder, {EVALUATION.record, LOCK}))
        # Reports then call the evaluation running.
        stack.enter_context(folder_lock.process_note(folder))
        done = _run_grid(request, planner, folder, models, report)

    summary = summarise(done.cells, done.tasks, models, planner.protocol, done.choices, done.notes)
    if request.as_is:
        summary.as_is = True
    _note_weight_folders(folder, summary, done)
    submissions, problems = _write_submissions(folder, done.choices, done.tasks, models)
    problems += _notes_on_lost_weights(done)
    summary.notes += problems
    summary.notes_in_short += problems
    failed = sum(cell.status != FINISHED for cell in done.cells.values())
    return EvaluationOutcome(summary, failed, submissions=tuple(submissions), choices=done.choices)


def _run_grid(
    request: EvaluationRequest, planner: Planner, folder: Path, models: Sequence[PlannedModel], report: Report
) -> _Finished:
    """Plan all tasks, and run the cells that are not finished, or whose weights are wanted and missing."""
    tasks = []
    for index, name in enumerate(planner.names):
        report(_PLANNING * index / len(planner.names), f"reading {name}", Count(index, "tasks"))
        tasks.append(planner.plan(name, models))

    # A finished cell whose weights are wanted and missing has to be trained again, so it counts as unfinished.
    keep = request.keep_weights
    results = ResultsFile(folder)
    cells = _rows_of(results, tasks)
    finished = _finished_rows(cells, tasks)
    if keep is not None:
        for cell_id in _without_weights(keep, folder, tasks, models, finished):
            del finished[cell_id]
        kept_weights.check_room(keep, folder, models, tasks, finished, request.workers)

    # Tokens are made for all tasks before the first cell runs. After that the rows of the last task can be forgotten.
    pending = [prepare_pending(task, models, finished, request) for task in tasks]
    load_rows.cache_clear()
    _run_pending(request, folder, results, models, pending, part_of(report, _PLANNING, 1.0))

    # The rows are read again, now with those of the cells that have just run.
    cells = _rows_of(results, tasks)
    choices = choose_all(cells, tasks, models)
    wanted = kept_weights.wanted_cells(keep, tasks, cells, choices)
    if keep == "best":
        kept_weights.remove_weights(folder, _planned_ids(tasks) - wanted)
    weight_folders = {cell_id: kept_weights.find_weights(folder, cells[cell_id]) for cell_id in wanted}
    notes = {task.planned.name: task.notes for task in pending}
    return _Finished(tasks, cells, choices, weight_folders, notes)


def _planned_ids(tasks: Sequence[PlannedTask]) -> set[str]:
    """Return the identities of all planned cells."""
    identities: set[str] = set()
    for task in tasks:
        identities.update(planned.id for planned in task.cells)
    return identities


def _rows_of(results: ResultsFile, tasks: Sequence[PlannedTask]) -> dict[str, EvaluationCell]:
    """Return the latest row of each planned cell, by identity; a finished row takes precedence over later failures."""
    # Of several rows of a cell the last one wins.
    latest = {cell.id: cell for cell in results.read()}
    latest.update(results.finished())
    planned = _planned_ids(tasks)
    return {cell_id: cell for cell_id, cell in latest.items() if cell_id in planned}


def _finished_rows(cells: Cells, tasks: Sequence[PlannedTask]) -> dict[str, EvaluationCell]:
    """Return the rows of the cells that need not run again, by identity."""
    finished: dict[str, EvaluationCell] = {}
    for task in tasks:
        for planned in task.cells:
            row = cells.get(planned.id)
            if row is None or row.status != FINISHED:
                continue
            # The description of a task may name other metrics than when the cell ran.
            if has_metrics(row, task.task.metrics):
                finished[planned.id] = row
    return finished


def _without_weights(
    keep: str,
    folder: Path,
    tasks: Sequence[PlannedTask],
    models: Sequence[PlannedModel],
    finished: Mapping[str, EvaluationCell],
) -> list[str]:
    """Return the identities of finished cells whose weights are wanted, or may be in the end, and are missing.

    Args:
        keep: `"best"` or `"all"`, see `limbeck.evaluation.run.kept_weights`.
        folder: The folder of the evaluation.
        tasks: The tasks with their planned cells.
        models: All models.
        finished: Rows of the finished cells, by identity.
    """
    wanted: list[str] = []
    for task in tasks:
        for model in models:
            finished_cells = _finished_cells(task, model.name, finished)
            if keep == "all":
                wanted += [cell.id for cell in finished_cells]
            else:
                wanted += kept_weights.candidates(finished_cells, task)

    trained = kept_weights.trained_ids(tasks)
    # Two tasks may want the same cell.
    candidates = [cell_id for cell_id in dict.fromkeys(wanted) if cell_id in trained]
    return [cell_id for cell_id in candidates if kept_weights.find_weights(folder, finished[cell_id]) is None]


def _finished_cells(task: PlannedTask, model: str, finished: Mapping[str, EvaluationCell]) -> list[EvaluationCell]:
    """Return the finished cells of a model on a task, in the order of the plan."""
    return [finished[planned.id] for planned in task.cells_of(model) if planned.id in finished]


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
    keep_in: Path | None = None
    if request.keep_weights is not None:
        keep_in = folder / KEPT_WEIGHTS
    trainings = _trainings_of(tasks, model_of, keep_in)
    provenance = Provenance.here()
    progress = GridProgress(trainings, report)

    def received(training: SharedTraining, message: Message) -> None:
        """Report the share of a training that is done, or write the row of a cell that is done."""
        if isinstance(message, ShareDone):
            progress.advance(training, message)
            return
        cell = training.cells[message.cell_id].cell
        row = row_of(
            training,
            message.cell_id,
            message.outcome,
            task=task_of[cell.task],
            model=model_of[cell.model],
            preset=request.preset,
            provenance=provenance,
            folder=folder,
        )
        results.append(row)
        if request.keep_weights == "best" and row.status == FINISHED:
            _drop_beaten(folder, results.finished(), cell.model, task_of[cell.task].planned)
        progress.finish_cell(training, describe_score(row))

    try:
        run_trainings(trainings, workers=request.workers, received=received)
    except KeyboardInterrupt:
        done = "Stopped before this call has ended a measurement"
        if progress.ended > 0:
            done = f"Stopped; {progress.ended} of {progress.count} measurements are done and kept in '{folder}'"
        raise Interrupted(f"{done}; run the same command again to continue.") from None


def _trainings_of(
    tasks: Sequence[PendingTask], models: Mapping[str, PlannedModel], keep_in: Path | None
) -> list[SharedTraining]:
    """Return the trainings of pending cells, in the order of their first cells; cells of several tasks may share one.

    Args:
        tasks: The tasks with their pending cells.
        models: All models, by name.
        keep_in: Folder that gets a subfolder of weights for each cell, named by its identity; None keeps no weights.
    """
    # By the identity of the training: its cells by their own identity, and the name of its evaluator.
    cells_of_training: dict[str, dict[str, ReadyCell]] = {}
    evaluator_of_training: dict[str, str] = {}
    for task in tasks:
        for planned in task.cells:
            save = None
            if keep_in is not None:
                save = partial(kept_weights.save_weights, keep_in / planned.id)
            tokenizer = models[planned.cell.model].tokenizer
            cells = cells_of_training.setdefault(planned.training, {})
            # Two names for the same model give cells with the same identity, which are run once.
            if planned.id not in cells:
                cells[planned.id] = ReadyCell(planned.cell, task.prepared[tokenizer], save)
            evaluator_of_training[planned.training] = task.evaluator.name

    trainings = []
    for training_id, cells in cells_of_training.items():
        work = work_of(cells.values(), models)
        trainings.append(SharedTraining(training_id, evaluator_of_training[training_id], cells, work))
    return trainings


def _drop_beaten(folder: Path, finished: Mapping[str, EvaluationCell], model: str, task: PlannedTask) -> None:
    """Remove the kept weights of cells that can no longer become the best of their model and task.

    Args:
        folder: The folder of the evaluation.
        finished: Rows of all finished cells, by identity.
        model: Name of the model.
        task: The task.
    """
    finished_cells = _finished_cells(task, model, finished)
    candidates = kept_weights.candidates(finished_cells, task)
    kept_weights.remove_weights(folder, {cell.id for cell in finished_cells} - candidates)


def _note_weight_folders(folder: Path, summary: studies.Evaluation, done: _Finished) -> None:
    """Write the folders of kept weights into the summary, which is changed in place."""
    chosen_points = {model.name: model.chosen for model in summary.models}
    # A choice is known by the name that the user gave to the task, which may be the path of its file. The summary has
    # the task's own name.
    own_names = {task.name: task.task.name for task in done.tasks}
    for (model, task_name), choice in done.choices.items():
        weight_folder = done.weight_folders.get(choice.best.id)
        if weight_folder is not None:
            chosen_point = chosen_points[model][own_names[task_name]]
            chosen_point.weights = weight_folder.relative_to(folder).as_posix()


def _notes_on_lost_weights(done: _Finished) -> list[str]:
    """Return a note for each cell whose weights could not be kept."""
    notes = []
    for cell_id, weight_folder in done.weight_folders.items():
        if weight_folder is None:
            cell = done.cells[cell_id]
            notes.append(
                f"The weights of {cell.model} on {cell.task}, seed {cell.seed}, could not be kept: the last line of "
                f"{RESULTS} with their `id` says why."
            )
    return notes


def _write_submissions(
    folder: Path, choices: Choices, tasks: Sequence[PlannedTask], models: Sequence[PlannedModel]
) -> tuple[list[Path], list[str]]:
    """Write the files for leaderboards; a file that cannot be written is named in a note."""
    submissions: list[Path] = []
    notes: list[str] = []
    task_of = {task.name: task for task in tasks}
    name_of_folder = folder_names(model.name for model in models)
    for (model, name), choice in choices.items():
        task = task_of[name]
        try:
            submissions += write_submissions(folder, name_of_folder[model], task.task, choice.cells, task.metric)
        except OutputError as error:
            notes.append(f"The leaderboard file of {model} on {task.task.title} could not be written: {error}")
    return submissions, notes
