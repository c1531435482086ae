"""Collecting the subjects of a report: folders by their records, refused where they hold none of ours."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.core import blocks, studies
from limbeck.core.paths import LAYER_COSINES, RECIPE, STAGES
from limbeck.core.records import PlannedStage, Run, Stage, load
from limbeck.core.run_status import status_of
from limbeck.errors import LimbeckError, OutputError
from limbeck.evaluation.results_file import ResultsFile
from limbeck.report import findings
from limbeck.search.requests import JOURNAL

RUN, COMPARISON, SEARCH = Run.FILE, studies.Comparison.FILE, studies.Search.FILE
EVALUATION = studies.EvaluationRequest.FILE
INSPECTIONS = ("phrases", "attention", "similarity", "contribution")
_NUMBERED = re.compile(r"(\d{1,4})-(.+)")


def collect(folders: Sequence[Path]) -> list[findings.Found]:
    """Read the subjects of a report, in the order that they are named; a folder that is named twice is read once.

    Args:
        folders: Folders of runs, comparisons, searches, evaluations and inspections, or files of inspections.

    Raises:
        OutputError: for a folder that does not exist, or holds none of these.
    """
    chosen = dict.fromkeys(Path(folder).expanduser() for folder in folders)
    return [_collect(folder) for folder in chosen]


def check_folders(folders: Sequence[Path]) -> None:
    """Refuse folders that hold nothing to report, before anything that draws is imported.

    Raises:
        OutputError: as `collect`.
    """
    for folder in (Path(folder).expanduser() for folder in folders):
        if folder.is_file() or not any((folder / name).is_file() for name in (RUN, COMPARISON, SEARCH, EVALUATION)):
            _collect(folder)


def _collect(folder: Path) -> findings.Found:
    if folder.is_file():
        results = _inspection(folder)
        if results is None:
            raise OutputError(
                f"'{folder}' is a file, but not that of an inspection; give a folder, or the .json file of `limbeck "
                "inspect`."
            )
        return findings.InspectionFound(folder=folder, title=folder.stem, results=results)
    if not folder.is_dir():
        raise OutputError(
            f"'{folder}' does not exist; give the folder of a run, comparison, search, evaluation or inspection."
        )
    found = _recognise(folder)
    if found is None:
        below = sorted({path.parent for pattern in (RUN, COMPARISON, SEARCH) for path in folder.glob(f"*/{pattern}")})
        hint = f"; some lie below it, such as '{below[0]}'" if below else ""
        raise OutputError(
            f"'{folder}' is not the folder of a run ({RUN}), a comparison ({COMPARISON}), a search ({SEARCH}), an "
            f"evaluation ({EVALUATION}) or an inspection ({INSPECTIONS[1]}.json …){hint}."
        )
    return found


def _recognise(folder: Path) -> findings.Found | None:
    """Read a folder by the kind of its files."""
    if (folder / COMPARISON).is_file():
        return _comparison(folder)
    if (folder / SEARCH).is_file():
        return _search(folder)
    if (folder / RUN).is_file() or ((folder / RECIPE).is_file() and (folder / STAGES).is_dir()):
        return _run(folder, _inside(folder))
    if (folder / EVALUATION).is_file():
        return _evaluation(folder)
    return _inspections(folder)


def _run(folder: Path, inside: tuple[findings.Found, ...] = ()) -> findings.RunFound:
    record = load(Run, folder)
    missing = f"'{RUN}' is missing or damaged; the report is made from the other files."
    problems = [missing] if record.is_empty else [*record.damage]
    try:
        recipe = (folder / RECIPE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        recipe = ""
        problems.append(f"'{RECIPE}' cannot be read.")
    return findings.RunFound(
        folder=folder, title=findings.title_of(record.name, folder), problems=tuple(problems), record=record,
        status=status_of(folder), stages=_stages(folder, record), recipe=recipe, inside=inside,
    )  # fmt: skip


def _stages(folder: Path, record: Run) -> tuple[findings.StageFound, ...]:
    """Gather the stages from the plan, the record and the folders: any of them may lack some."""
    plans, records, folders = record.recipe.stages, record.stages, _folders(folder / STAGES)
    found = []
    for index in sorted({*range(len(plans)), *range(len(records)), *(number - 1 for number in folders)}):
        plan = plans[index] if index < len(plans) else PlannedStage()
        done = records[index] if index < len(records) else Stage()
        named, log = "", findings.StageLog()
        cosines: tuple[float, ...] = ()
        if own := folders.get(index + 1):
            done = load(Stage, own) if done.is_empty else done
            named, log, cosines = own.name.partition("-")[2], findings.read_stage_log(own), _layer_cosines(own)
        title = done.name or plan.name or named or plan.method_name or f"stage {index + 1}"
        found.append(findings.StageFound(title, done, plan, log, cosines))
    return tuple(found)


def _folders(stages: Path) -> dict[int, Path]:
    """The stages' folders by their numbers."""
    try:
        names = sorted(path for path in stages.iterdir() if path.is_dir())
    except OSError:
        return {}
    return {int(found[1]): path for path in names if (found := _NUMBERED.fullmatch(path.name))}


def _layer_cosines(folder: Path) -> tuple[float, ...]:
    try:
        return tuple(map(float, json.loads((folder / LAYER_COSINES).read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError, RecursionError):
        return ()


def _inside(folder: Path) -> tuple[findings.Found, ...]:
    """Read the measurements of a run in its folder: those in itself, and those in the folders below it."""
    own = _inspections(folder)
    try:
        below = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name not in (STAGES, "student")]
    except OSError:
        below = []
    found = [None if (path / RUN).is_file() else _recognise(path) for path in below]
    return tuple(one for one in (own, *found) if one is not None)


def _search(folder: Path) -> findings.SearchFound:
    """Read the record of a search, and of one that is not finished the content of its study."""
    record = load(studies.Search, folder)
    found = findings.SearchFound(folder=folder, title=record.name or folder.name, problems=record.damage, record=record)
    if record.is_finished:
        return found
    from limbeck.report.study import read_study, so_far, standing  # Of Optuna, for a search that is under way.

    try:
        study = read_study(folder, found.title)
        if study is None:
            return found
        silent = max(0.0, time.time() - (folder / JOURNAL).stat().st_mtime)
        return replace(found, standing=standing(study, silent), so_far=so_far(record, study))
    except OutputError as error:
        problem = str(error)
    except (*blocks.DAMAGED, OSError) as error:
        problem = f"The study '{found.title}' in '{JOURNAL}' is damaged ({type(error).__name__})."
    return replace(found, problems=(*found.problems, problem))


def _comparison(folder: Path) -> findings.ComparisonFound:
    record = load(studies.Comparison, folder)
    runs: dict[tuple[str, str, str], findings.RunFound] = {}
    begun: dict[Path, None] = {}
    for cell in record.cells:
        kind, place = (cell.student, cell.method, cell.mapping), folder / cell.folder
        # A record is a file like any other: the folders that it names have to lie below it.
        if place.resolve().is_relative_to(folder.resolve()) and (place / RUN).is_file():
            begun[place] = None
            if kind not in runs:
                runs[kind] = _run(place)
    states = () if record.is_finished else map(status_of, begun)
    return findings.ComparisonFound(
        folder=folder, title=record.name or folder.name, problems=record.damage, record=record,
        runs=tuple(runs.values()), unfinished=tuple(state for state in states if state.status != "finished"),
    )  # fmt: skip


def _evaluation(folder: Path) -> findings.EvaluationFound:
    asked, summary = load(studies.EvaluationRequest, folder), load(studies.Evaluation, folder)
    problems = (*asked.damage, *summary.damage)
    try:
        cells = ResultsFile(folder).read()
    except LimbeckError as error:
        cells, problems = [], (*problems, str(error))
    return findings.EvaluationFound(
        folder=folder, title=folder.name, problems=problems, summary=summary, cells=tuple(cells), asked=asked
    )


def _inspections(folder: Path) -> findings.InspectionFound | None:
    results: dict[str, Any] = {}
    problems: list[str] = []
    for path in filter(Path.is_file, (folder / f"{name}.json" for name in INSPECTIONS)):
        found = _inspection(path)
        results |= found or {}
        problems += [] if found else [f"'{path.name}' cannot be read as an inspection."]
    if not results and not problems:
        return None
    return findings.InspectionFound(folder=folder, title=folder.name, results=results, problems=tuple(problems))


def _inspection(path: Path) -> dict[str, Any] | None:
    """Read the file of an inspection: its result by its name; None where it is none."""
    if path.suffix != ".json":
        return None
    record = load(studies.Inspection, path)
    known = record.inspection in INSPECTIONS and "result" in record.model_fields_set
    return {record.inspection: record.result} if known else None
