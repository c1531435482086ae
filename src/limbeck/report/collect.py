"""Collecting the subjects of a report: folders of any kind, which are told apart by the records in them.

A *record* is a file in which limbeck has described a result, such as `run.json`. A *subject* is the content of a
folder with records. A folder without any is refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.core import studies
from limbeck.core.folder_lock import is_worked_in
from limbeck.core.paths import (
    COMPARISON_RECORD,
    EVALUATION_REQUEST,
    RECIPE,
    RUN_RECORD,
    SEARCH_RECORD,
    STAGES,
    STUDENT,
)
from limbeck.core.records import load
from limbeck.errors import LimbeckError, OutputError
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.report.collect_runs import read_comparison, read_run
from limbeck.report.statuses import LAST_UPDATE, last_update
from limbeck.report.subjects import EvaluationFolder, InspectionFolder, SearchFolder, Subject

INSPECTIONS = ("phrases", "attention", "similarity", "contribution")
"""Names of the inspections; the file of each is `NAME.json`."""
_RECORDS = (RUN_RECORD, COMPARISON_RECORD, SEARCH_RECORD, EVALUATION_REQUEST)
"""Files of which each is enough to know that a folder can be reported."""


def collect(folders: Sequence[Path]) -> list[Subject]:
    """Read the subjects of a report, in the order of their folders; a folder that is given twice is read once.

    Args:
        folders: Folders of runs, comparisons, searches, evaluations and inspections, or files of inspections.

    Raises:
        OutputError: for a folder that does not exist, or holds none of these.
    """
    unique_folders = dict.fromkeys(Path(folder).expanduser() for folder in folders)
    return [_read(folder) for folder in unique_folders]


def check_folders(folders: Sequence[Path]) -> None:
    """Refuse folders that hold nothing to report, before anything that draws is imported.

    Raises:
        OutputError: as `collect`.
    """
    for path in folders:
        folder = Path(path).expanduser()
        has_record = any((folder / name).is_file() for name in _RECORDS)
        if not has_record:
            _read(folder)


def _read(path: Path) -> Subject:
    """Read a folder of any kind, or the file of an inspection."""
    if path.is_file():
        results = _read_inspection(path)
        if results is None:
            raise OutputError(
                f"'{path}' is a file, but not one that `limbeck inspect` wrote; give a folder, or the .json file "
                "of an inspection."
            )
        return InspectionFolder(folder=path, title=path.stem, results=results)
    if not path.is_dir():
        raise OutputError(
            f"'{path}' does not exist; give the folder of a run, comparison, search, evaluation or inspection."
        )
    subject = _read_folder(path)
    if subject is None:
        raise OutputError(
            f"'{path}' is not the folder of a run ({RUN_RECORD}), a comparison ({COMPARISON_RECORD}), a search "
            f"({SEARCH_RECORD}), an evaluation ({EVALUATION_REQUEST}) or an inspection (attention.json …)"
            f"{_hint(path)}."
        )
    return subject


def _hint(folder: Path) -> str:
    """Name one of the folders below that can be reported on, if there is one."""
    folders_below: list[Path] = []
    for name in _RECORDS:
        folders_below += [path.parent for path in folder.glob(f"*/{name}")]
    if not folders_below:
        return ""
    return f"; some lie below it, such as '{min(folders_below)}'"


def _read_folder(folder: Path) -> Subject | None:
    """Read a folder by the kind of its files; None where it holds nothing to report."""
    # A comparison holds runs, and a run may hold the others: the outer folder decides.
    if (folder / COMPARISON_RECORD).is_file():
        return read_comparison(folder)
    if (folder / SEARCH_RECORD).is_file():
        return _read_search(folder)
    # A run that was killed before its first record has a recipe and stages.
    is_run = (folder / RECIPE).is_file() and (folder / STAGES).is_dir()
    if is_run or (folder / RUN_RECORD).is_file():
        return read_run(folder, _read_inside(folder))
    if (folder / EVALUATION_REQUEST).is_file():
        return _read_evaluation(folder)
    return _read_inspections(folder)


def _read_inside(folder: Path) -> tuple[Subject, ...]:
    """Read the measurements of a run in its folder: those in itself, and those in the folders below it."""
    subjects: list[Subject | None] = [_read_inspections(folder)]
    try:
        folders_below = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        folders_below = []
    for path in folders_below:
        is_part_of_run = path.name in (STAGES, STUDENT)
        if not is_part_of_run and not (path / RUN_RECORD).is_file():
            subjects.append(_read_folder(path))
    return tuple(subject for subject in subjects if subject is not None)


def _read_search(folder: Path) -> SearchFolder:
    """Read a search: its record, and for an unfinished one the results so far from the storage of its trials."""
    record = load(studies.Search, folder)
    title = record.name or folder.name
    search = SearchFolder(folder=folder, title=title, problems=record.damage, record=record)
    if record.is_finished:
        return search

    # Imports Optuna, which a finished search does not need.
    from limbeck.search.progress import read_progress

    try:
        progress = read_progress(folder, title, record)
    except OutputError as error:
        return replace(search, problems=(*search.problems, str(error)))
    # Without a journal of its trials, a search has no progress to show.
    if progress is None:
        return search
    facts = {"Status": progress.status, "Workers": progress.workers, "Trials": progress.trials}
    if progress.seconds_since is not None:
        facts[LAST_UPDATE] = last_update(progress.seconds_since)
    known_facts = tuple((name, value) for name, value in facts.items() if value)
    return replace(search, progress=known_facts, so_far=progress.record)


def _read_evaluation(folder: Path) -> EvaluationFolder:
    """Read an evaluation: its request, its tables, and its cells, each of which is a model on a task with a seed."""
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
        is_running=is_worked_in(folder),
    )


def _read_inspections(folder: Path) -> InspectionFolder | None:
    """Read the files of inspections in a folder; None where there are none."""
    results: dict[str, Any] = {}
    problems: list[str] = []
    for name in INSPECTIONS:
        path = folder / f"{name}.json"
        if not path.is_file():
            continue
        result = _read_inspection(path)
        if result:
            results.update(result)
        else:
            problems.append(f"'{path.name}' cannot be read as an inspection.")
    if not results and not problems:
        return None
    return InspectionFolder(folder=folder, title=folder.name, results=results, problems=tuple(problems))


def _read_inspection(path: Path) -> dict[str, Any] | None:
    """Read the file of an inspection, as a mapping of its name to its result; None for another file."""
    if path.suffix != ".json":
        return None
    record = load(studies.Inspection, path)
    if record.inspection not in INSPECTIONS or "result" not in record.model_fields_set:
        return None
    return {record.inspection: record.result}
