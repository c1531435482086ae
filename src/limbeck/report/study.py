"""The study of a search under way, read from the journal in its folder: what it has found, and how it stands."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from limbeck.core import blocks, records, studies
from limbeck.errors import OutputError
from limbeck.report import findings
from limbeck.search import architecture, mapping_space, teacher_layer
from limbeck.search.mapping import candidates_of, generation_rows
from limbeck.search.requests import JOURNAL
from limbeck.search.scores import LAYER_SCORES as SCORES
from limbeck.search.study import DIVERGED, IDENTITY
from limbeck.search.workers import BEAT_SECONDS, MISSED_BEATS, is_gone, machine, worker_key

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
    TrialState.RUNNING: "started",
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


# How a search that is not finished stands: workers, outcomes of trials, last update.


_SAME, _DIVERGED = "of shapes already tried", "diverged"
_STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.RUNNING: "started",
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
    status = "running" if workers["at work"] else "dead" if workers["lost"] else "interrupted"
    trials = Counter(map(_came_to, study.get_trials(deepcopy=False)))
    pairs = (
        ("Status", status),
        ("Workers", _counted(workers, ("at work", "ended", "lost"))),
        ("Trials", _counted(trials, (*_STATES.values(), _DIVERGED, _SAME))),
        (findings.LAST_UPDATE, findings.last_update(silent)),
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
        return "ended" if sign["ended"] else "lost"
    lives = sign["machine"] == machine() or silent <= MISSED_BEATS * (sign["interval"] or BEAT_SECONDS)
    return "at work" if lives else "lost"


def _counted(counts: Counter[str], order: tuple[str, ...]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in order if counts[name])
