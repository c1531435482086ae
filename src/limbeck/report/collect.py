"""Collecting the subjects of a report: folders by their records, refused where they hold none of ours."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.core import studies
from limbeck.core.paths import (
    COMPARISON_RECORD,
    EVALUATION_REQUEST,
    RECIPE,
    RUN_RECORD,
    SEARCH_RECORD,
    STAGES,
    STUDENT,
)
from limbeck.core.records import PlannedStage, Run, Stage, load
from limbeck.core.run_status import status_of
from limbeck.errors import LimbeckError, OutputError
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.report.logs import StageLog, read_stage_log
from limbeck.report.names import title_of
from limbeck.report.statuses import LAST_UPDATE, last_update
from limbeck.report.subjects import (
    ComparisonFolder,
    EvaluationFolder,
    InspectionFolder,
    RunFolder,
    SearchFolder,
    StageFolder,
    Subject,
)

INSPECTIONS = ("phrases", "attention", "similarity", "contribution")
_RECORDS = (RUN_RECORD, COMPARISON_RECORD, SEARCH_RECORD, EVALUATION_REQUEST)
_NUMBERED_STAGE = re.compile(r"(\d{1,4})-(.+)")


def collect(folders: Sequence[Path]) -> list[Subject]:
    """Read the subjects of a report, in the order that they are named; a folder that is named twice is read once.

    Args:
        folders: Folders of runs, comparisons, searches, evaluations and inspections, or files of inspections.

    Raises:
        OutputError: for a folder that does not exist, or holds none of these.
    """
    unique = dict.fromkeys(Path(folder).expanduser() for folder in folders)
    return [_read(folder) for folder in unique]


def check_folders(folders: Sequence[Path]) -> None:
    """Refuse folders that hold nothing to report, before anything that draws is imported.

    Raises:
        OutputError: as `collect`.
    """
    for path in folders:
        folder = Path(path).expanduser()
        has_record = any((folder / name).is_file() for name in _RECORDS)
        if folder.is_file() or not has_record:
            _read(folder)


def _read(folder: Path) -> Subject:
    if folder.is_file():
        results = _read_inspection(folder)
        if results is None:
            raise OutputError(
                f"'{folder}' is a file, but not that of an inspection; give a folder, or the .json file of `limbeck "
                "inspect`."
            )
        return InspectionFolder(folder=folder, title=folder.stem, results=results)
    if not folder.is_dir():
        raise OutputError(
            f"'{folder}' does not exist; give the folder of a run, comparison, search, evaluation or inspection."
        )
    subject = _recognise(folder)
    if subject is None:
        raise OutputError(
            f"'{folder}' is not the folder of a run ({RUN_RECORD}), a comparison ({COMPARISON_RECORD}), a search "
            f"({SEARCH_RECORD}), an evaluation ({EVALUATION_REQUEST}) or an inspection ({INSPECTIONS[1]}.json …)"
            f"{_hint(folder)}."
        )
    return subject


def _hint(folder: Path) -> str:
    """Name one of the folders below that can be reported on, if there is one."""
    names = (RUN_RECORD, COMPARISON_RECORD, SEARCH_RECORD)
    below = [path.parent for name in names for path in folder.glob(f"*/{name}")]
    if not below:
        return ""
    return f"; some lie below it, such as '{min(below)}'"


def _recognise(folder: Path) -> Subject | None:
    """Read a folder by the kind of its files."""
    # A comparison holds runs, and a run may hold the others: the outer folder decides.
    if (folder / COMPARISON_RECORD).is_file():
        return _comparison(folder)
    if (folder / SEARCH_RECORD).is_file():
        return _search(folder)
    # A run that was killed before its first record has a recipe and stages.
    is_run = (folder / RECIPE).is_file() and (folder / STAGES).is_dir()
    if is_run or (folder / RUN_RECORD).is_file():
        return _run(folder, _inside(folder))
    if (folder / EVALUATION_REQUEST).is_file():
        return _evaluation(folder)
    return _inspections(folder)


def _run(folder: Path, inside: tuple[Subject, ...] = ()) -> RunFolder:
    record = load(Run, folder)
    problems = list(record.damage)
    if record.is_empty:
        problems = [f"'{RUN_RECORD}' is missing or damaged; the report is made from the other files."]
    recipe = ""
    try:
        recipe = (folder / RECIPE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        problems.append(f"'{RECIPE}' cannot be read.")
    return RunFolder(
        folder=folder,
        title=title_of(record.name, folder),
        problems=tuple(problems),
        record=record,
        status=status_of(folder),
        stages=_stages(folder, record),
        recipe=recipe,
        inside=inside,
    )


def _stages(folder: Path, record: Run) -> tuple[StageFolder, ...]:
    """Gather the stages from the plan, the record and the folders: any of them may lack some."""
    # Stages are matched by their numbers, which are in the names of their folders too.
    plans = dict(enumerate(record.recipe.stages, start=1))
    stages = dict(enumerate(record.stages, start=1))
    folders = _stage_folders(folder / STAGES)
    numbers = sorted({*plans, *stages, *folders})
    return tuple(
        _stage(number, plans.get(number, PlannedStage()), stages.get(number, Stage()), folders.get(number))
        for number in numbers
    )


def _stage(number: int, plan: PlannedStage, record: Stage, folder: Path | None) -> StageFolder:
    title = ""
    log = StageLog()
    if folder is not None:
        title = folder.name.partition("-")[2]
        log = read_stage_log(folder)
        if record.is_empty:
            record = load(Stage, folder)
    title = record.name or plan.name or title or plan.method_name or f"stage {number}"
    return StageFolder(title, record, plan, log)


def _stage_folders(folder: Path) -> dict[int, Path]:
    """Return the stages' folders by their numbers."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return {}
    folders = {}
    for path in paths:
        match = _NUMBERED_STAGE.fullmatch(path.name)
        if match is not None:
            folders[int(match[1])] = path
    return folders


def _inside(folder: Path) -> tuple[Subject, ...]:
    """Read the measurements of a run in its folder: those in itself, and those in the folders below it."""
    subjects: list[Subject | None] = [_inspections(folder)]
    try:
        below = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        below = []
    for path in below:
        is_part_of_run = path.name in (STAGES, STUDENT)
        if not is_part_of_run and not (path / RUN_RECORD).is_file():
            subjects.append(_recognise(path))
    return tuple(subject for subject in subjects if subject is not None)


def _search(folder: Path) -> SearchFolder:
    """Read the record of a search, and of an unfinished one the content of its study."""
    record = load(studies.Search, folder)
    title = record.name or folder.name
    search = SearchFolder(folder=folder, title=title, problems=record.damage, record=record)
    if record.is_finished:
        return search
    from limbeck.search.progress import read_progress  # Imports Optuna.

    try:
        progress = read_progress(folder, title, record)
    except OutputError as error:
        return replace(search, problems=(*search.problems, str(error)))
    if progress is None:
        return search
    facts = {
        "Status": progress.status,
        "Workers": progress.workers,
        "Trials": progress.trials,
        LAST_UPDATE: last_update(progress.seconds_since),
    }
    known = tuple((name, value) for name, value in facts.items() if value)
    return replace(search, progress=known, so_far=progress.record)


def _comparison(folder: Path) -> ComparisonFolder:
    record = load(studies.Comparison, folder)
    runs: dict[tuple[str, str, str], RunFolder] = {}
    begun: dict[Path, None] = {}
    for cell in record.cells:
        place = folder / cell.folder
        # A record is a file like any other: the folders that it names have to lie below it.
        is_below = place.resolve().is_relative_to(folder.resolve())
        if is_below and (place / RUN_RECORD).is_file():
            begun[place] = None
            combination = (cell.student, cell.method, cell.mapping)
            if combination not in runs:
                runs[combination] = _run(place)
    # Statuses are read of unfinished comparisons only: they look at locks and processes.
    unfinished = []
    if not record.is_finished:
        statuses = [status_of(place) for place in begun]
        unfinished = [status for status in statuses if status.status != "finished"]
    return ComparisonFolder(
        folder=folder,
        title=record.name or folder.name,
        problems=record.damage,
        record=record,
        runs=tuple(runs.values()),
        unfinished=tuple(unfinished),
    )


def _evaluation(folder: Path) -> EvaluationFolder:
    request = load(studies.EvaluationRequest, folder)
    summary = load(studies.Evaluation, folder)
    problems = [*request.damage, *summary.damage]
    cells: list[studies.EvaluationCell] = []
    try:
        cells = ResultsFile(folder).read()
    except LimbeckError as error:
        problems.append(str(error))
    return EvaluationFolder(
        folder=folder,
        title=folder.name,
        problems=tuple(problems),
        summary=summary,
        cells=tuple(cells),
        request=request,
    )


def _inspections(folder: Path) -> InspectionFolder | None:
    results: dict[str, Any] = {}
    problems: list[str] = []
    for name in INSPECTIONS:
        path = folder / f"{name}.json"
        if not path.is_file():
            continue
        result = _read_inspection(path)
        if result:
            results |= result
        else:
            problems.append(f"'{path.name}' cannot be read as an inspection.")
    if not results and not problems:
        return None
    return InspectionFolder(folder=folder, title=folder.name, results=results, problems=tuple(problems))


def _read_inspection(path: Path) -> dict[str, Any] | None:
    """Read the file of an inspection: its result by its name; None where it is none."""
    if path.suffix != ".json":
        return None
    record = load(studies.Inspection, path)
    if record.inspection not in INSPECTIONS or "result" not in record.model_fields_set:
        return None
    return {record.inspection: record.result}
