"""Collecting the subjects of a report: folders by their records, refused where they hold none of ours."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from limbeck.core.blocks import DAMAGED
from limbeck.core.files import RECORD, read_json, read_record
from limbeck.core.files import RECORD as RUN
from limbeck.core.records import load
from limbeck.core.studies import Comparison, Evaluation, EvaluationRequest
from limbeck.errors import LimbeckError, OutputError
from limbeck.evaluation.grid import MANIFEST as EVALUATION
from limbeck.evaluation.grid import ResultsFile
from limbeck.report import findings
from limbeck.report.records import entries, mapping, text, title_of
from limbeck.report.search_study import read_study, so_far, standing
from limbeck.search.requests import JOURNAL
from limbeck.search.study import RECORD as SEARCH
from limbeck.training.output_folder import RECIPE
from limbeck.training.record import status_of
from limbeck.training.run import STAGES
from limbeck.training.stage import DONE

# Reading a run's folder: its record, its stages finished or not, and how it stands.


COMPARISON = Comparison.FILE
_COSINES = "layer_cosines.json"
_NUMBERED = re.compile(r"(\d{1,4})-(.+)")


def collect_run(folder: Path, inside: tuple[findings.Found, ...]) -> findings.RunFound:
    """Read a run.

    Args:
        folder: Its folder.
        inside: What else is in it.
    """
    record = read_record(folder)
    problems = [] if record else [f"'{RECORD}' is missing or damaged; what is shown is from the other files."]
    try:
        recipe = (folder / RECIPE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        recipe = ""
        problems.append(f"'{RECIPE}' cannot be read.")
    title = title_of(record.get("name"), folder)
    return findings.RunFound(
        folder, title, record, status_of(folder), _stages(folder, record), recipe, tuple(problems), inside
    )


def _stages(folder: Path, record: findings.Record) -> tuple[findings.StageFound, ...]:
    """Gather the stages from the plan, the record and the folders: any of them may lack some."""
    plans, records = entries(record, "recipe", "stages"), entries(record, "stages")
    folders = _folders(folder / STAGES)
    found = []
    for index in sorted({*range(len(plans)), *range(len(records)), *(number - 1 for number in folders)}):
        plan: findings.Record = plans[index] if index < len(plans) else {}
        own = folders.get(index + 1)
        done: findings.Record = records[index] if index < len(records) else {}
        if not done and own is not None:
            done = read_json(own / DONE)
        named = _NUMBERED.fullmatch(own.name) if own is not None else None
        title = (
            text(done, "name") or text(plan, "name") or (named[2] if named else text(mapping(plan, "method"), "name"))
        )
        log = findings.read_stage_log(own) if own is not None else findings.StageLog()
        found.append(findings.StageFound(title or f"stage {index + 1}", done, plan, log, _layer_cosines(own)))
    return tuple(found)


def _folders(stages: Path) -> dict[int, Path]:
    """The stages' folders by their numbers."""
    try:
        names = sorted(path for path in stages.iterdir() if path.is_dir())
    except OSError:
        return {}
    return {int(found[1]): path for path in names if (found := _NUMBERED.fullmatch(path.name))}


def _layer_cosines(folder: Path | None) -> tuple[float, ...]:
    try:
        found = json.loads((folder / _COSINES).read_text(encoding="utf-8")) if folder is not None else []
        return tuple(map(float, found))
    except (OSError, ValueError, TypeError, RecursionError):
        return ()


# Reading a search's folder: its record, and of one that is not finished what its study holds.


def collect_search(folder: Path, record: findings.Record, problems: tuple[str, ...]) -> findings.SearchFound:
    """Read a search.

    Args:
        folder: Its folder.
        record: Its record, as far as it can be read.
        problems: What is wrong with that.
    """
    title = text(record, "name") or folder.name
    if text(record, "status") == "finished":
        return findings.SearchFound(folder, title, record, problems)
    study, more = read_study(folder, title)
    if study is None:
        return findings.SearchFound(folder, title, record, (*problems, *more))
    try:
        silent = max(0.0, time.time() - (folder / JOURNAL).stat().st_mtime)
        stands, found = standing(study, silent), so_far(text(record, "kind"), study)
    except (*DAMAGED, OSError) as error:
        damaged = f"The study '{title}' in '{JOURNAL}' is damaged ({type(error).__name__})."
        return findings.SearchFound(folder, title, record, (*problems, *more, damaged))
    return findings.SearchFound(folder, title, record, (*problems, *more), so_far=found, standing=stands)


INSPECTIONS = ("phrases", "attention", "similarity", "contribution")
_MOST_BYTES = 400 * 2**20


def collect(folders: Sequence[Path]) -> list[findings.Found]:
    """Read what a report is asked for, in the order it is named; a folder that is named twice is read once.

    Args:
        folders: Folders of runs, comparisons, searches, evaluations and inspections, or files of inspections.

    Raises:
        OutputError: for a folder that does not exist, or holds none of these.
    """
    chosen = dict.fromkeys(Path(folder).expanduser() for folder in folders)
    return [_collect(folder) for folder in chosen]


def _collect(folder: Path) -> findings.Found:
    if folder.is_file():
        results = _inspection(folder)
        if results is None:
            raise OutputError(
                f"'{folder}' is a file of no inspection; give a folder, or the .json file of `limbeck inspect`."
            )
        return findings.InspectionFound(folder, folder.stem, results)
    if not folder.is_dir():
        raise OutputError(f"'{folder}' does not exist; give the folder of a run, a comparison, a search or the like.")
    found = _recognise(folder)
    if found is None:
        below = sorted({path.parent for pattern in (RUN, COMPARISON, SEARCH) for path in folder.glob(f"*/{pattern}")})
        hint = f"; there are some in it: '{below[0]}'" if below else ""
        raise OutputError(
            f"'{folder}' is no folder of a run ({RUN}), a comparison ({COMPARISON}), a search ({SEARCH}), an "
            f"evaluation ({EVALUATION}) or an inspection ({INSPECTIONS[1]}.json …){hint}."
        )
    return found


def _recognise(folder: Path) -> findings.Found | None:
    """Read a folder as what its files say it is."""
    if (folder / COMPARISON).is_file():
        return _comparison(folder)
    if (folder / SEARCH).is_file():
        record, problems = _read(folder / SEARCH)
        return collect_search(folder, record, problems)
    if (folder / RUN).is_file() or ((folder / RECIPE).is_file() and (folder / "stages").is_dir()):
        return collect_run(folder, _inside(folder))
    if (folder / EVALUATION).is_file():
        return _evaluation(folder)
    return _inspections(folder)


def _inside(folder: Path) -> tuple[findings.Found, ...]:
    """Read what was measured of a run and kept in its folder: in itself, and in the folders that are its own."""
    own = _inspections(folder)
    try:
        below = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name not in ("stages", "student")]
    except OSError:
        below = []
    found = [None if (path / RUN).is_file() else _recognise(path) for path in below]
    return tuple(one for one in (own, *found) if one is not None)


def _comparison(folder: Path) -> findings.ComparisonFound:
    record = load(Comparison, folder)
    runs: dict[tuple[str, str, str], findings.RunFound] = {}
    begun: list[Path] = []
    for cell in record.cells:
        kind = (cell.student, cell.method, cell.mapping)
        place = folder / cell.folder
        # A record is a file like any other: what it names has to lie below it.
        if not place.resolve().is_relative_to(folder.resolve()) or not (place / RUN).is_file():
            continue
        begun.append(place)
        if kind not in runs:
            runs[kind] = collect_run(place, ())
    states = () if record.is_finished else tuple(map(status_of, dict.fromkeys(begun)))
    unfinished = tuple(state for state in states if state.status != "finished")
    title = record.name or folder.name
    return findings.ComparisonFound(folder, title, record, tuple(runs.values()), record.damage, unfinished)


def _evaluation(folder: Path) -> findings.EvaluationFound:
    asked, summary = load(EvaluationRequest, folder), load(Evaluation, folder)
    problems = (*asked.damage, *summary.damage)
    try:
        cells = ResultsFile(folder).read()
    except LimbeckError as error:
        cells, problems = [], (*problems, str(error))
    return findings.EvaluationFound(folder, folder.name, summary, tuple(cells), asked, problems)


def _inspections(folder: Path) -> findings.InspectionFound | None:
    results: dict[str, Any] = {}
    problems: list[str] = []
    for name in INSPECTIONS:
        path = folder / f"{name}.json"
        if path.is_file():
            found = _inspection(path)
            if found is None:
                problems.append(f"'{path.name}' cannot be read as an inspection.")
            else:
                results |= found
    return findings.InspectionFound(folder, folder.name, results, tuple(problems)) if results or problems else None


def _inspection(path: Path) -> dict[str, Any] | None:
    record, _ = _read(path)
    name = record.get("inspection")
    return {name: record["result"]} if name in INSPECTIONS and "result" in record else None


def _read(path: Path) -> tuple[findings.Record, tuple[str, ...]]:
    """Read a JSON mapping, and say what is wrong with it if it is none."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}, (f"'{path.name}' is larger than {_MOST_BYTES // 2**20} MB, which no record is.",)
    except OSError as error:
        return {}, (f"'{path.name}' cannot be read: {error.strerror}.",)
    found = read_json(path)
    return found, () if found or _is_empty(path) else (f"'{path.name}' is damaged and cannot be read.",)


def _is_empty(path: Path) -> bool:
    try:
        return json.loads(path.read_text(encoding="utf-8")) == {}
    except (OSError, ValueError, RecursionError):
        return False
