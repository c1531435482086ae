"""The study of a search under way, read from the journal in its folder: its results so far, and its progress.

Nothing is written, locked or waited for, so that a report can be made at any time.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from limbeck.core import blocks, records, studies
from limbeck.errors import OutputError
from limbeck.search import architecture, mapping_space, teacher_layer
from limbeck.search.generations import candidates_of, generation_rows
from limbeck.search.requests import JOURNAL
from limbeck.search.scores import LAYER_SCORES
from limbeck.search.study import IDENTITY
from limbeck.search.trial_log import DIVERGED
from limbeck.search.workers import BEAT_SECONDS, MISSED_BEATS, is_gone, machine, worker_key

_LAYER_STATES = {
    TrialState.RUNNING: "started",
    TrialState.COMPLETE: "trained",
    TrialState.PRUNED: "dropped",
    TrialState.FAIL: "stopped",
}
_TRIAL_STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.RUNNING: "started",
    TrialState.WAITING: "waiting",
    TrialState.PRUNED: "ended early",
    TrialState.FAIL: "failed",
}
_DIVERGED_TRIAL = "diverged"
_REPEATED_TRIAL = "of shapes already tried"


@dataclass(frozen=True)
class Progress:
    """The progress of a search that is not finished.

    Args:
        record: Its results so far, as its record will have them.
        status: `running`, `interrupted` if its workers ended, or `dead` if they vanished.
        workers: Workers by their state, in words.
        trials: Trials by their state, in words.
        seconds_since: Since its journal was last written; workers that live write a sign of life into it.
    """

    record: studies.Search
    status: str
    workers: str
    trials: str
    seconds_since: float


def read_progress(folder: Path, name: str, record: studies.Search) -> Progress | None:
    """Read the progress of a search; None where no journal is in its folder.

    Args:
        folder: The search's folder.
        name: The study's name.
        record: Of the search, from its beginning.

    Raises:
        OutputError: if the journal cannot be read.
    """
    path = folder / JOURNAL
    if not path.is_file():
        return None
    if path.stat().st_size > records.MOST_BYTES:
        raise OutputError(f"'{JOURNAL}' is larger than {records.MOST_BYTES // 2**20} MB, and is not read.")
    try:
        study = optuna.load_study(study_name=name, storage=optuna.storages.JournalStorage(_JournalText(path)))
    except (*blocks.DAMAGED, AssertionError, optuna.exceptions.OptunaError, OSError, RecursionError) as error:
        reason = type(error).__name__
        raise OutputError(f"The study '{name}' cannot be read from '{JOURNAL}' ({reason}).") from None
    seconds_since = max(0.0, time.time() - path.stat().st_mtime)
    try:
        return _progress_of(study, record, seconds_since)
    except blocks.DAMAGED as error:
        raise OutputError(f"The study '{name}' in '{JOURNAL}' is damaged ({type(error).__name__}).") from None


class _JournalText(optuna.storages.journal.BaseJournalBackend):
    """The content of a journal at one moment."""

    def __init__(self, path: Path) -> None:
        self._logs = list(_whole_lines(path))

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the entries from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuse: a report leaves a study as it is."""
        raise OSError("a report only reads studies")


def _whole_lines(path: Path) -> Iterator[Any]:
    """Yield the entries; a last line without an end is being written, or was left by a killed worker."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def _progress_of(study: optuna.Study, record: studies.Search, seconds_since: float) -> Progress:
    signs = [value for name, value in study.user_attrs.items() if name.startswith(worker_key(""))]
    workers = Counter(_worker_state(sign, seconds_since) for sign in signs)
    status = "interrupted"
    if workers["at work"]:
        status = "running"
    elif workers["lost"]:
        status = "dead"
    trials = Counter(_trial_state(trial) for trial in study.get_trials(deepcopy=False))
    return Progress(
        record=_results(record, study),
        status=status,
        workers=_count_states(workers, ("at work", "ended", "lost")),
        trials=_count_states(trials, (*_TRIAL_STATES.values(), _DIVERGED_TRIAL, _REPEATED_TRIAL)),
        seconds_since=seconds_since,
    )


def _worker_state(sign: dict[str, Any], seconds_since: float) -> str:
    """Judge a worker by its process where this machine can see it, else by the age of the last sign of any."""
    if sign["ended"]:
        return "ended"
    if is_gone(sign):
        return "lost"
    patience = MISSED_BEATS * (sign["interval"] or BEAT_SECONDS)
    if sign["machine"] == machine() or seconds_since <= patience:
        return "at work"
    return "lost"


def _trial_state(trial: FrozenTrial) -> str:
    if trial.state == TrialState.FAIL and architecture.SAME_AS in trial.user_attrs:
        return _REPEATED_TRIAL
    if trial.state == TrialState.FAIL and trial.user_attrs.get(DIVERGED):
        return _DIVERGED_TRIAL
    return _TRIAL_STATES[trial.state]


def _count_states(counts: Counter[str], order: Sequence[str]) -> str:
    return ", ".join(f"{counts[state]:,} {state}" for state in order if counts[state])


def _results(record: studies.Search, study: optuna.Study) -> studies.Search:
    """Return the record of a search as far as it is known; its `best` is None before anything was measured."""
    identity = study.user_attrs.get(IDENTITY)
    if not isinstance(identity, dict):
        identity = {}
    fields: dict[str, Any] = {}
    match record:
        case studies.MappingSearch() if "space.choices" in identity:  # Else it has just begun.
            fields = _mapping_results(study, identity)
        case studies.ArchitectureSearch():
            fields = _shape_results(study, identity)
        case studies.TeacherLayerSearch():
            fields = _layer_results(study)
    return type(record)(kind=record.kind, identity=identity, **fields)


def _mapping_results(study: optuna.Study, identity: dict[str, Any]) -> dict[str, Any]:
    layers = {layer for choices in identity["space.choices"] for layer in choices}
    space = mapping_space.elm_space(identity["space.student layers"], identity["space.teacher layers"], layers - {0})
    candidates = candidates_of(study.get_trials(deepcopy=False), space)
    best = candidates[0] if candidates else None
    scores = list(best.scores) if best is not None else []
    return {"generations": generation_rows(study, space), "candidates": candidates, "scores": scores, "best": best}


def _shape_results(study: optuna.Study, identity: dict[str, Any]) -> dict[str, Any]:
    trials = architecture.read_shapes(study).done
    shapes = [architecture.shape_fields(point, trial) for point, trial in trials.items()]
    best, front = architecture.best_and_front(shapes)
    limits = studies.ShapeLimits.read({"latency_share": identity.get("limit.latency_share")})
    return {"shapes": shapes, "front": front, "best": best, "limits": limits}


def _layer_results(study: optuna.Study) -> dict[str, Any]:
    """Read every candidate with its scores; one that was begun again counts from its last beginning."""
    layers: dict[int, studies.SearchedLayer] = {}
    for trial in study.get_trials(deepcopy=False):
        layer = trial.params.get(teacher_layer.OPTION)
        if layer is not None:
            steps = sorted(trial.intermediate_values.items())
            scores = [studies.LayerScore(step=step, score=score) for step, score in steps]
            state = _LAYER_STATES.get(trial.state, "waiting")
            layers[layer] = studies.SearchedLayer(layer=layer, scores=scores, state=state)

    scored = [row for row in layers.values() if row.scores]
    scored.sort(key=lambda row: (row.scores[-1].step, row.scores[-1].score or 0.0), reverse=True)
    unscored = sorted((row for row in layers.values() if not row.scores), key=lambda row: row.layer)
    best = scored[0] if scored else None
    return {"layers": [*scored, *unscored], "scores": list(LAYER_SCORES), "best": best}
