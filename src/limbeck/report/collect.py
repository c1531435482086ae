"""Collecting the subjects of a report: folders by their records, refused where they hold none of ours."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from limbeck.core import blocks, records, studies
from limbeck.core.records import STAGES, PlannedStage, Run, Stage, load
from limbeck.errors import LimbeckError, OutputError
from limbeck.evaluation.grid import ResultsFile
from limbeck.report import findings
from limbeck.search import architecture, mapping_space, teacher_layer
from limbeck.search.mapping import candidates_of, generation_rows
from limbeck.search.requests import JOURNAL
from limbeck.search.scores import LAYER_SCORES as SCORES
from limbeck.search.study import DIVERGED, IDENTITY
from limbeck.search.workers import BEAT_SECONDS, MISSED_BEATS, is_gone, machine, worker_key
from limbeck.training.output_folder import RECIPE
from limbeck.training.record import status_of

RUN, COMPARISON, SEARCH = Run.FILE, studies.Comparison.FILE, studies.Search.FILE
EVALUATION = studies.EvaluationRequest.FILE
INSPECTIONS = ("phrases", "attention", "similarity", "contribution")
_COSINES = "layer_cosines.json"
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


def _collect(folder: Path) -> findings.Found:
    if folder.is_file():
        results = _inspection(folder)
        if results is None:
            raise OutputError(
                f"'{folder}' is a file, but not one of an inspection; give a folder, or the .json file of `limbeck "
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
        hint = f"; there are some below it, such as '{below[0]}'" if below else ""
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
        return tuple(map(float, json.loads((folder / _COSINES).read_text(encoding="utf-8"))))
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


# The study of a search, read from the journal in its folder: nothing is written, locked or waited for.


class _JournalText(optuna.storages.journal.BaseJournalBackend):
    """What a journal holds at a moment."""

    def __init__(self, path: Path) -> None:
        self._logs = list(_whole_lines(path))

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the entries from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuse: a report leaves a study as it is."""
        raise OSError("a report only reads studies")


def read_study(folder: Path, name: str) -> optuna.Study | None:
    """Read a study as it stands; None where there is none in the folder.

    Args:
        folder: The search's folder.
        name: The study's name.

    Raises:
        OutputError: if it cannot be read.
    """
    path = folder / JOURNAL
    if not path.is_file():
        return None
    if path.stat().st_size > records.MOST_BYTES:
        raise OutputError(f"'{JOURNAL}' is larger than {records.MOST_BYTES // 2**20} MB, and is not read.")
    try:
        return optuna.load_study(study_name=name, storage=optuna.storages.JournalStorage(_JournalText(path)))
    except (*blocks.DAMAGED, AssertionError, optuna.exceptions.OptunaError, OSError, RecursionError) as error:
        reason = type(error).__name__
        raise OutputError(f"The study '{name}' cannot be read from '{JOURNAL}' ({reason}).") from None


def _whole_lines(path: Path) -> Iterator[Any]:
    """Read the entries; a last line without an end is one that is being written, or that a killed worker left."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


# What the study of a search holds before the search is finished, as its record will have it.


_LAYER_STATES = {
    TrialState.RUNNING: "begun",
    TrialState.COMPLETE: "trained",
    TrialState.PRUNED: "dropped",
    TrialState.FAIL: "stopped",
}


def so_far(record: studies.Search, study: optuna.Study) -> studies.Search:
    """Read what a search has found until now.

    Args:
        record: Of the search, from its beginning.
        study: Its study.

    Returns:
        The record as far as it is known: `generations`, `candidates`, `scores` of a search of mappings; `shapes`,
        `front`, `limits` of one of shapes; `layers`, `scores` of one of teacher layers; `best` and `identity` of all.
        `best` is None before anything was measured.
    """
    identity = study.user_attrs.get(IDENTITY)
    identity = identity if isinstance(identity, dict) else {}
    fields: dict[str, Any] = {}
    match record:
        case studies.MappingSearch() if "space.choices" in identity:  # Else it has just begun.
            fields = _mappings(study, identity)
        case studies.ArchitectureSearch():
            shapes = [
                architecture.shape_fields(point, trial) for point, trial in architecture.read_shapes(study).done.items()
            ]
            best, front = architecture.best_and_front(shapes)
            limits = studies.ShapeLimits.read({"latency_share": identity.get("limit.latency_share")})
            fields = {"shapes": shapes, "front": front, "best": best, "limits": limits}
        case studies.TeacherLayerSearch():
            fields = _layers(study)
    return type(record)(kind=record.kind, identity=identity, **fields)


def _mappings(study: optuna.Study, identity: dict[str, Any]) -> dict[str, Any]:
    layers = {layer for choices in identity["space.choices"] for layer in choices}
    space = mapping_space.elm_space(identity["space.student layers"], identity["space.teacher layers"], layers - {0})
    candidates = candidates_of(study.get_trials(deepcopy=False), space)
    best = candidates[0] if candidates else None
    scores = list(best.scores) if best is not None else []
    return {"generations": generation_rows(study, space), "candidates": candidates, "scores": scores, "best": best}


def _layers(study: optuna.Study) -> dict[str, Any]:
    """Read every candidate with its scores; one that was begun again counts from its last beginning."""
    rows = {}
    for trial in study.get_trials(deepcopy=False):
        if (layer := trial.params.get(teacher_layer.OPTION)) is not None:
            steps = sorted(trial.intermediate_values.items())
            scores = [studies.LayerScore(step=step, score=score) for step, score in steps]
            state = _LAYER_STATES.get(trial.state, "waiting")
            rows[layer] = studies.SearchedLayer(layer=layer, scores=scores, state=state)
    scored = [row for row in rows.values() if row.scores]
    ranked = sorted(scored, key=lambda row: (row.scores[-1].step, row.scores[-1].score or 0.0), reverse=True)
    unscored = sorted((row for row in rows.values() if not row.scores), key=lambda row: row.layer)
    return {"layers": [*ranked, *unscored], "scores": list(SCORES), "best": ranked[0] if ranked else None}


# How a search that is not finished stands: workers, outcomes of trials, last sign of life.


_SAME, _DIVERGED = "of shapes that were tried before", "diverged"
_STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.RUNNING: "begun",
    TrialState.WAITING: "waiting",
    TrialState.PRUNED: "ended early",
    TrialState.FAIL: "failed",
}


def standing(study: optuna.Study, silent: float) -> tuple[tuple[str, str], ...]:
    """Say how a search stands, in the words of `limbeck status`.

    Args:
        study: Its study.
        silent: Seconds since its journal was last written; workers that live write a sign of life into it.

    Returns:
        Names and values; `Status` is `running`, `interrupted` if its workers ended, or `dead` if they are gone
        without a word.
    """
    signs = [sign for name, sign in study.user_attrs.items() if name.startswith(worker_key(""))]
    workers = Counter(_worker(sign, silent) for sign in signs)
    status = "running" if workers["at work"] else "dead" if workers["gone"] else "interrupted"
    trials = Counter(map(_came_to, study.get_trials(deepcopy=False)))
    pairs = (
        ("Status", status),
        ("Workers", _counted(workers, ("at work", "ended", "gone"))),
        ("Trials", _counted(trials, (*_STATES.values(), _DIVERGED, _SAME))),
        ("Last sign of life", findings.last_sign(silent)),
    )
    return tuple((name, value) for name, value in pairs if value)


def _came_to(trial: FrozenTrial) -> str:
    if trial.state != TrialState.FAIL:
        return _STATES[trial.state]
    attributes = trial.user_attrs
    return (
        _SAME if architecture.SAME_AS in attributes else _DIVERGED if attributes.get(DIVERGED) else _STATES[trial.state]
    )


def _worker(sign: dict[str, Any], silent: float) -> str:
    """Judge a worker by its process where this machine can see it, else by the age of the last sign of any."""
    if sign["ended"] or is_gone(sign):
        return "ended" if sign["ended"] else "gone"
    lives = sign["machine"] == machine() or silent <= MISSED_BEATS * (sign["interval"] or BEAT_SECONDS)
    return "at work" if lives else "gone"


def _counted(counts: Counter[str], order: tuple[str, ...]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in order if counts[name])
