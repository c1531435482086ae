"""The study of a search, read from the journal in its folder: nothing is written, locked or waited for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import OptunaError
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.core import records, studies
from limbeck.core.blocks import DAMAGED
from limbeck.report.findings import last_sign
from limbeck.search.architecture import SAME_AS, best_and_front, read_shapes, shape_fields
from limbeck.search.mapping import candidates_of, generations_of
from limbeck.search.mapping_space import elm_space
from limbeck.search.requests import JOURNAL
from limbeck.search.scores import LAYER_SCORES as SCORES
from limbeck.search.study import DIVERGED, IDENTITY
from limbeck.search.teacher_layer import OPTION
from limbeck.search.workers import BEAT_SECONDS, MISSED_BEATS, is_gone, machine, worker_key


class _JournalText(BaseJournalBackend):
    """What a journal holds at a moment."""

    def __init__(self, path: Path) -> None:
        self._logs = list(_whole_lines(path))

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the entries from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuse: a report leaves a study as it is."""
        raise OSError("a report only reads studies")


def read_study(folder: Path, name: str) -> tuple[Study | None, tuple[str, ...]]:
    """Read a study as it stands.

    Args:
        folder: The search's folder.
        name: The study's name.

    Returns:
        The study, or None where there is none in the folder; and what is wrong with it, in lines.
    """
    path = folder / JOURNAL
    if not path.is_file():
        return None, ()
    try:
        if path.stat().st_size > records.MOST_BYTES:
            return None, (f"'{JOURNAL}' is larger than {records.MOST_BYTES // 2**20} MB, and is not read.",)
        return optuna.load_study(study_name=name, storage=JournalStorage(_JournalText(path))), ()
    except (*DAMAGED, AssertionError, OptunaError, OSError, RecursionError) as error:
        return None, (f"The study '{name}' cannot be read from '{JOURNAL}' ({type(error).__name__}).",)


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


def so_far(record: studies.Search, study: Study) -> studies.Search:
    """Read what a search has found until now.

    Args:
        record: Of the search, from its beginning.
        study: Its study.

    Returns:
        The record as far as it is known: `generations`, `candidates`, `scores` of a search of mappings; `shapes`,
        `front`, `limits` of one of shapes; `layers`, `scores` of one of teacher layers; `best` and `identity` of all.
        `best` is None before anything was measured.
    """
    trials = study.get_trials(deepcopy=False)
    identity = study.user_attrs.get(IDENTITY)
    identity = identity if isinstance(identity, dict) else {}
    match record:
        case studies.MappingSearch():
            return _mappings(trials, study, identity)
        case studies.ArchitectureSearch():
            shapes = [shape_fields(point, trial) for point, trial in read_shapes(trials).done.items()]
            best, front = best_and_front(shapes)
            limits = studies.ShapeLimits.read({"latency_share": identity.get("limit.latency_share")})
            return studies.ArchitectureSearch(
                kind=record.kind, identity=identity, shapes=shapes, front=front, best=best, limits=limits
            )
        case studies.TeacherLayerSearch():
            return _layers(trials, identity)
    return studies.Search(identity=identity)


def _mappings(trials: Sequence[FrozenTrial], study: Study, identity: dict[str, Any]) -> studies.MappingSearch:
    if "space.choices" not in identity:
        return studies.MappingSearch(kind="mapping", identity=identity)  # It has just begun.
    layers = {layer for choices in identity["space.choices"] for layer in choices}
    space = elm_space(identity["space.student layers"], identity["space.teacher layers"], layers - {0})
    candidates = candidates_of(trials, space)
    by_gene = {candidate.gene: candidate for candidate in candidates}
    return studies.MappingSearch(
        kind="mapping",
        identity=identity,
        generations=[studies.Generation.read(row) for row in generations_of(study, space, by_gene)],
        candidates=candidates,
        scores=list(candidates[0].scores) if candidates else [],
        best=candidates[0] if candidates else None,
    )


def _layers(trials: Sequence[FrozenTrial], identity: dict[str, Any]) -> studies.TeacherLayerSearch:
    """Read every candidate with its scores; one that was begun again counts from its last beginning."""
    rows = {}
    for trial in trials:
        if (layer := trial.params.get(OPTION)) is not None:
            steps = sorted(trial.intermediate_values.items())
            scores = [studies.LayerScore(step=step, score=score) for step, score in steps]
            state = _LAYER_STATES.get(trial.state, "waiting")
            rows[layer] = studies.SearchedLayer(layer=layer, scores=scores, state=state)
    scored = [row for row in rows.values() if row.scores]
    ranked = sorted(scored, key=lambda row: (row.scores[-1].step, row.scores[-1].score or 0.0), reverse=True)
    unscored = sorted((row for row in rows.values() if not row.scores), key=lambda row: row.layer)
    best = ranked[0] if ranked else None
    return studies.TeacherLayerSearch(
        kind="teacher-layer", identity=identity, layers=[*ranked, *unscored], scores=list(SCORES), best=best
    )


# How a search that is not finished stands: who works on it, what its trials came to, its last sign of life.


_SAME, _DIVERGED = "of shapes that were tried before", "diverged"
_STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.RUNNING: "begun",
    TrialState.WAITING: "waiting",
    TrialState.PRUNED: "ended early",
    TrialState.FAIL: "failed",
}


def standing(study: Study, silent: float) -> tuple[tuple[str, str], ...]:
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
        ("Last sign of life", last_sign(silent)),
    )
    return tuple((name, value) for name, value in pairs if value)


def _came_to(trial: FrozenTrial) -> str:
    if trial.state != TrialState.FAIL:
        return _STATES[trial.state]
    attributes = trial.user_attrs
    return _SAME if SAME_AS in attributes else _DIVERGED if attributes.get(DIVERGED) else _STATES[trial.state]


def _worker(sign: dict[str, Any], silent: float) -> str:
    """Judge a worker by its process where this machine can see it, else by the age of the last sign of any."""
    if sign["ended"] or is_gone(sign):
        return "ended" if sign["ended"] else "gone"
    lives = sign["machine"] == machine() or silent <= MISSED_BEATS * (sign["interval"] or BEAT_SECONDS)
    return "at work" if lives else "gone"


def _counted(counts: Counter[str], order: tuple[str, ...]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in order if counts[name])
