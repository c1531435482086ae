"""Runs of a grid: every cell once, on disk as soon as it is finished; the tables and leaderboard files at the end.

The flow: a request becomes a plan of cells (`grid_plan`); what `results.jsonl` has is left out; of the rest, cells with
the same training are one `SharedTraining`, run in this process or in several; `grid_summary` makes the tables.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from limbeck.core import folders, machine, records, studies
from limbeck.core.files import atomic_text
from limbeck.core.kinds import KINDS
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.studies import FAILED, FINISHED, EvaluationCell
from limbeck.core.workers import run_tasks
from limbeck.errors import Interrupted, OutputError, describe_error
from limbeck.evaluation import encoding, grid_plan, kept_weights
from limbeck.evaluation.cell import Cell, TrainingPoint, settings_of
from limbeck.evaluation.fine_tuning import CellResult, Share, Trained, changed_keywords, select_split, train_once
from limbeck.evaluation.grid_summary import Cells, Choices, best_run, choose_all, summarise
from limbeck.evaluation.metrics import THRESHOLDS, given_classes
from limbeck.evaluation.request import EVALUATION, EvaluationRequest
from limbeck.evaluation.results_file import RESULTS, ResultsFile
from limbeck.evaluation.tasks import AnswerPrediction, Predictions, Submission, Task

_PLANNING = 0.05
"""Share of the progress that loading and encoding the tasks is given; nobody knows how long it takes."""
Found = TypeVar("Found")


MANIFEST = studies.EvaluationRequest.FILE
SUBMISSIONS = "submissions"
PREDICTIONS = "predictions"
"""The folder of an evaluation's saved predictions."""


def prepare_folder(folder: Path, *, preset: str, overrides: list[str], as_is: bool = False) -> Path:
    """Make or take up the folder of an evaluation. Models, tasks and seeds may be added to it.

    The first cell binds it to its preset and settings, and to fine-tuning or models as they are; a request that was
    refused before does not.

    Args:
        folder: The folder.
        preset: Name of the protocol.
        overrides: Settings in place of those of the protocol.
        as_is: Whether models are scored as they are.

    Returns:
        The folder.

    Raises:
        OutputError: if it is a file, holds something else or an evaluation by other settings, or cannot be written.
    """
    folder = folder.expanduser()
    asked = studies.EvaluationRequest(preset=preset, set=overrides)
    if as_is:
        asked.as_is = True
    folders.claim(folder, _EVALUATION, asked.to_dict())
    with folders.writing(folder):
        records.save(asked, folder)
    return folder


def _check_same(folder: Path, saved: dict[str, Any], asked: Mapping[str, Any]) -> None:
    if not ResultsFile(folder).read():
        return
    if bool(saved.get("as_is")) != bool(asked.get("as_is")):
        way = "scores models as they are" if saved.get("as_is") else "fine-tunes its models"
        raise OutputError(
            f"The evaluation in '{folder}' {way}; give {'' if saved.get('as_is') else 'no '}--as-is, or another "
            "--output."
        )
    for key, name in (("preset", "--preset"), ("set", "--set")):
        if saved.get(key) != asked[key]:
            raise OutputError(
                f"The evaluation in '{folder}' has {name} {_shown(saved.get(key))}, not {_shown(asked[key])}; "
                "use the same, or another --output."
            )


_EVALUATION = replace(EVALUATION, check=_check_same)


def _shown(value: Any) -> str:
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value)) or "nothing"


@dataclass(frozen=True)
class SharedTraining:
    """A fine-tuning and the cells that it is scored for.

    Attributes:
        id: Identity of the training, or of the one cell where nothing is trained.
        cells: By identity; of one model, grid point and seed.
        work: Its cost, compared with that of others.
        keep: Folder in which the weights of each cell are kept by its identity; None keeps none.
    """

    id: str
    cells: Mapping[str, encoding.PreparedCell]
    work: float
    keep: Path | None = None

    def describe(self) -> str:
        """Return it in a few words, for progress."""
        first, *others = (cell.cell for cell in self.cells.values())
        return first.describe() + (f"; scored on {', '.join(cell.task for cell in others)} too" if others else "")


@dataclass(frozen=True)
class Failure:
    """Why a cell gave nothing, in one line."""

    problem: str


Outcome = CellResult | Failure
Message = float | tuple[str, Outcome]
"""The share of a training that is done, 0 to 1; or the identity of one of its cells with its outcome."""


def run_trainings(
    trainings: Sequence[SharedTraining], *, workers: int, received: Callable[[SharedTraining, Message], None]
) -> None:
    """Run trainings and score their cells, in this process or in several, each with its share of cores and its GPU.

    A Trainer that sees several GPUs would spread its batch over them, so on such a machine even a single worker has a
    separate process. A failed training ends its own cells only, and a failed cell itself only.

    Args:
        trainings: In this order.
        workers: Processes; 1 runs them in this one.
        received: Is called with every message of a training, as soon as it is there.
    """
    if workers == 1 and torch.cuda.device_count() <= 1:
        for training in trainings:
            _run_training(training, partial(received, training))
        return
    left = {training.id: dict.fromkeys(training.cells) for training in trainings}

    def pass_on(training: SharedTraining, message: Message) -> None:
        if isinstance(message, tuple):
            del left[training.id][message[0]]
        received(training, message)

    def ended(training: SharedTraining, problem: str | None) -> None:
        for identity in left.pop(training.id):
            received(training, (identity, Failure(problem or "It has no outcome.")))

    run_tasks(_run_training, trainings, workers=workers, received=pass_on, ended=ended)


def _run_training(training: SharedTraining, send: Callable[[Message], None]) -> None:
    def tell(share: float) -> None:
        send(float(share))

    tell(0.0)
    trained = _tried(partial(train_once, list(training.cells.values()), tell))
    for identity, cell in training.cells.items():
        place = None if training.keep is None else training.keep / identity
        scored = trained if isinstance(trained, Failure) else _tried(partial(_score, trained, cell, place, tell))
        send((identity, scored))


def _score(trained: Trained, cell: encoding.PreparedCell, place: Path | None, report: Share) -> CellResult:
    """Score a cell, and keep the weights that it was scored by."""
    found, tuner = trained.score(cell, report), trained.tuner
    if place is None or tuner is None:
        return found
    return replace(found, weights=kept_weights.save_weights(place, tuner.model, tuner.tokenizer))


def _tried(action: Callable[[], Found]) -> Found | Failure:
    try:
        return action()
    except Exception as error:  # A fault in one cell must not take the night's other cells with it.
        return Failure(describe_error(error))


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
    keep = folder / kept_weights.WEIGHTS if request.keep_weights is not None else None
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


def write_submissions(folder: Path, model: str, task: Task, cells: Sequence[EvaluationCell], metric: str) -> list[Path]:
    """Write the leaderboard files of a model on a task, by the best run of its chosen grid point.

    Args:
        folder: Of the evaluation.
        model: As the user named it; its files have their own folder.
        task: The task.
        cells: The finished runs of the chosen point.
        metric: By which the best is chosen on the select split.

    Returns:
        The files; none where nothing was predicted.

    Raises:
        OutputError: if the saved predictions are missing or damaged.
    """
    predicted = [cell for cell in cells if cell.predictions]
    if not predicted:
        return []
    best = best_run(predicted, metric)
    task = replace(task, thresholds=_thresholds_of(best, task))
    saved = read_predictions(folder / str(best.predictions))
    home = folder / SUBMISSIONS / (re.sub(r"[^\w.-]+", "-", model).strip("-.") or "model")
    return [write_submission(task, split, found, home) for split, found in saved.items() if split in task.predicted]


def _thresholds_of(cell: EvaluationCell, task: Task) -> tuple[float, ...]:
    """Return the thresholds that a cell chose; empty where it chose none."""
    if cell.thresholds is not None:
        return tuple(cell.thresholds)
    # Rows of earlier versions have them among the scores alone.
    names = [f"{label}{THRESHOLDS}" for label in task.labels]
    chosen = next((scores for scores in cell.scores.values() if {*names} <= {*scores}), None)
    return () if chosen is None else tuple(float(chosen[name] or 0) for name in names)


# Predictions of unlabelled splits, in the evaluation's folder and in the files that leaderboards take.


def write_submission(task: Task, split: str, predictions: Predictions, folder: Path, *, threshold: float = 0.0) -> Path:
    """Write the predictions of a split, in the file that the task names for it.

    A `.tsv` has the header `index`, `prediction` and a row per prediction, as GLUE's leaderboard takes it: class names
    or numbers (several between `|`), or values, within the leaderboard's bounds. A `.json` of classes has an object a
    line with the number of the row and the class name, in the order of the test file, as CLUE's takes it; of answers it
    is one object of id to
    text, as SQuAD's script reads it. A split for which the task names no file goes to `{task}-{split}.tsv` with class
    names or values, or to `{task}-{split}.json` with answers.

    Args:
        task: Whose split it is.
        split: Its name.
        predictions: For every row of the split, in order; answers by row id.
        folder: Made if it is not there.
        threshold: An answer whose null odds are above it is written as empty, where questions may have none.

    Returns:
        The file.

    Source: GLUE's page on submissions (gluebenchmark.com/faq); CLUE's notes on submissions of 4 September 2021, which
    name files `<task>_predict.json` and say that of a line only the label is read; OCNLI's file name is that of the
    CLUE baselines in PaddleNLP; SQuAD's evaluation script.
    """
    wanted = task.submissions.get(split)
    suffix = "json" if isinstance(predictions, Mapping) else "tsv"
    path = folder / (f"{task.name}-{split}.{suffix}" if wanted is None else wanted.file)
    if isinstance(predictions, Mapping):
        most = math.inf if task.answerable_only else threshold
        texts = {key: "" if found.null_odds > most else found.text for key, found in predictions.items()}
        text = json.dumps(texts, ensure_ascii=False)
    else:
        values = [_written(task, prediction, wanted) for prediction in predictions]
        if path.suffix == ".json":
            rows = ({"id": number, "label": value} for number, value in enumerate(values))
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        else:
            text = "index\tprediction\n" + "".join(f"{number}\t{value}\n" for number, value in enumerate(values))
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _written(task: Task, prediction: Any, wanted: Submission | None) -> str:
    if KINDS[task.kind].has_several:
        given = np.flatnonzero(given_classes(prediction, task)).tolist()
        return "|".join(_written_class(task, number, wanted) for number in given)
    if KINDS[task.kind].of_words:
        return " ".join(_written_class(task, number, wanted) for number in prediction)
    if KINDS[task.kind].has_classes:
        return _written_class(task, int(prediction), wanted)
    least, most = (wanted and wanted.range) or (-math.inf, math.inf)
    return f"{min(max(float(prediction), least), most):.3f}"


def _written_class(task: Task, number: int, wanted: Submission | None) -> str:
    return str(number) if wanted and wanted.classes == "numbers" else task.labels[number]


def save_predictions(folder: Path, identity: str, predictions: Mapping[str, Predictions]) -> str | None:
    """Write a cell's predictions of unlabelled splits.

    Args:
        folder: Of the evaluation.
        identity: Of the cell.
        predictions: By split.

    Returns:
        The file, relative to the folder; None without predictions.
    """
    if not predictions:
        return None
    path = folder / PREDICTIONS / f"{identity}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_text(path, json.dumps({split: _plain(found) for split, found in predictions.items()}))
    return str(path.relative_to(folder))


def read_predictions(path: Path) -> dict[str, Predictions]:
    """Read what `save_predictions` wrote, by split.

    Raises:
        OutputError: if the file is missing or damaged.
    """
    try:
        return {split: _restored(found) for split, found in json.loads(path.read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        raise OutputError(f"'{path}' is missing.") from None
    except (OSError, ValueError, TypeError, AttributeError):
        raise OutputError(f"'{path}' is damaged.") from None


def _plain(predictions: Predictions) -> Any:
    if not isinstance(predictions, Mapping):
        return list(predictions)
    return {
        key: [found.text, found.null_odds if math.isfinite(found.null_odds) else None]
        for key, found in predictions.items()
    }


def _restored(saved: Any) -> Predictions:
    if isinstance(saved, list):
        return saved
    return {key: AnswerPrediction(text, math.inf if odds is None else odds) for key, (text, odds) in saved.items()}
