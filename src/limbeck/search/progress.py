"""The results so far and the progress of a search that is not finished, read from the journal in its folder.

The *journal* is the file in which Optuna keeps a study and its trials. Nothing is written, locked or waited for, so a
report can be made at any time.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from limbeck.core import blocks, records, studies
from limbeck.errors import OutputError
from limbeck.search import architecture, mapping_space, shape_trials, teacher_layer
from limbeck.search.held_out_scores import LAYER_SCORES
from limbeck.search.mapping_results import candidates_of, generation_rows
from limbeck.search.requests import JOURNAL
from limbeck.search.study import IDENTITY
from limbeck.search.trial_log import DIVERGED
from limbeck.search.worker_signs import MISSED_BEATS, is_gone, machine, signs_of

# States of workers, in the order in which they are shown.
_AT_WORK = "at work"
_ENDED = "ended"
_LOST = "lost"

# States of trials in words, in the order in which they are shown.
_TRIAL_STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.RUNNING: "started",
    TrialState.WAITING: "waiting",
    TrialState.PRUNED: "ended early",
    TrialState.FAIL: "failed",
}
_DIVERGED_TRIAL = "diverged"
_REPEATED_TRIAL = "of shapes already tried"

# States of the candidates of a search for a teacher layer, each of which has a trial.
_LAYER_STATES = {
    TrialState.RUNNING: "started",
    TrialState.COMPLETE: "trained",
    TrialState.PRUNED: "dropped",
    TrialState.FAIL: "stopped",
}


@dataclass(frozen=True)
class Progress:
    """The progress of a search that is not finished.

    Args:
        record: Its results so far, as its record will have them.
        status: `running` if a worker lives; else `dead` if one was killed, or `interrupted` if all ended in order.
        workers: Workers by their state, in words.
        trials: Trials by their state, in words.
        seconds_since: Seconds since its journal was last written; living workers write signs of life into it.
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
        record: The record that the search wrote at its beginning.

    Raises:
        OutputError: if the journal cannot be read.
    """
    path = folder / JOURNAL
    if not path.is_file():
        return None
    if path.stat().st_size > records.MOST_BYTES:
        raise OutputError(
            f"'{JOURNAL}' is larger than {records.MOST_BYTES // 2**20} MB, more than any search writes, so it is "
            "not read."
        )
    # A damaged journal can raise nearly anything in Optuna's own code.
    try:
        storage = optuna.storages.JournalStorage(_JournalSnapshot(path))
        study = optuna.load_study(study_name=name, storage=storage)
    except (*blocks.DAMAGED, AssertionError, optuna.exceptions.OptunaError, OSError, RecursionError) as error:
        reason = type(error).__name__
        raise OutputError(f"The study '{name}' cannot be read from '{JOURNAL}' ({reason}).") from None
    seconds_since = max(0.0, time.time() - path.stat().st_mtime)
    try:
        return _progress_of(study, record, seconds_since)
    except blocks.DAMAGED as error:
        raise OutputError(f"The study '{name}' in '{JOURNAL}' is damaged ({type(error).__name__}).") from None


class _JournalSnapshot(optuna.storages.journal.BaseJournalBackend):
    """The content of a journal at one moment, as a storage of Optuna that cannot be written."""

    def __init__(self, path: Path) -> None:
        self._entries = list(_whole_lines(path))

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the entries whose number is at least this one."""
        return self._entries[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuse to write: a report leaves a study as it is."""
        raise OSError("a report only reads studies")


def _whole_lines(path: Path) -> Iterator[Any]:
    """Yield the entries, but for a last line that is still being written, or whose worker was killed meanwhile."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def _progress_of(study: optuna.Study, record: studies.Search, seconds_since: float) -> Progress:
    """Return the progress of a study.

    Args:
        study: The study.
        record: The record that the search wrote at its beginning.
        seconds_since: Since its journal was last written.
    """
    worker_counts = Counter(_worker_state(sign, seconds_since) for sign in signs_of(study.user_attrs).values())
    trial_counts = Counter(_trial_state(trial) for trial in study.get_trials(deepcopy=False))
    status = "interrupted"
    if worker_counts[_AT_WORK] > 0:
        status = "running"
    elif worker_counts[_LOST] > 0:
        status = "dead"
    return Progress(
        record=_results_so_far(record, study),
        status=status,
        workers=_describe_counts(worker_counts, (_AT_WORK, _ENDED, _LOST)),
        trials=_describe_counts(trial_counts, (*_TRIAL_STATES.values(), _DIVERGED_TRIAL, _REPEATED_TRIAL)),
        seconds_since=seconds_since,
    )


def _worker_state(sign: Mapping[str, Any], seconds_since: float) -> str:
    """Return the state of a worker, given its sign of life.

    A worker of this machine is judged by its process. Others are judged by the age of the whole journal, into which
    every living worker writes.
    """
    if sign["ended"]:
        return _ENDED
    if is_gone(sign):
        return _LOST
    if sign["machine"] == machine():
        return _AT_WORK
    patience = MISSED_BEATS * sign["interval"]
    return _AT_WORK if seconds_since <= patience else _LOST


def _trial_state(trial: FrozenTrial) -> str:
    """Return the state of a trial in words."""
    if trial.state == TrialState.FAIL and shape_trials.SAME_AS in trial.user_attrs:
        return _REPEATED_TRIAL
    if trial.state == TrialState.FAIL and trial.user_attrs.get(DIVERGED):
        return _DIVERGED_TRIAL
    return _TRIAL_STATES[trial.state]


def _describe_counts(counts: Counter[str], order: Sequence[str]) -> str:
    """Return for example `3 finished, 1 started`; states without any are left out."""
    return ", ".join(f"{counts[state]:,} {state}" for state in order if counts[state] > 0)


def _results_so_far(record: studies.Search, study: optuna.Study) -> studies.Search:
    """Return the record of a search as far as it is known; its `best` is None before anything was measured."""
    identity = study.user_attrs.get(IDENTITY)
    if not isinstance(identity, dict):
        identity = {}
    results: dict[str, Any] = {}
    if isinstance(record, studies.MappingSearch):
        # A study whose identity has no space yet has just begun, and has no results.
        if "space.choices" in identity:
            results = _mapping_results(study, identity)
    elif isinstance(record, studies.ArchitectureSearch):
        results = _shape_results(study, identity)
    elif isinstance(record, studies.TeacherLayerSearch):
        results = _layer_results(study)
    return type(record)(kind=record.kind, identity=identity, **results)


def _mapping_results(study: optuna.Study, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generations and mappings so far."""
    # The space is made again from its description in the identity.
    teacher_layers: set[int] = set()
    for choices in identity["space.choices"]:
        teacher_layers.update(choices)
    space = mapping_space.elm_space(
        student=identity["space.student layers"],
        teacher=identity["space.teacher layers"],
        teacher_layers=teacher_layers - {mapping_space.NONE},
    )
    candidates = candidates_of(study.get_trials(deepcopy=False), space)
    best = None
    scores: list[str] = []
    if candidates:
        best = candidates[0]
        scores = list(best.scores)
    return {"generations": generation_rows(study, space), "candidates": candidates, "scores": scores, "best": best}


def _shape_results(study: optuna.Study, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shapes so far, the best and the front."""
    trials = shape_trials.read_shapes(study).done
    shapes = [shape_trials.shape_row(point, trial) for point, trial in trials.items()]
    best, front = architecture.best_and_front(shapes)
    limits = studies.ShapeLimits.read({"latency_share": identity.get("limit.latency_share")})
    return {"shapes": shapes, "front": front, "best": best, "limits": limits}


def _layer_results(study: optuna.Study) -> dict[str, Any]:
    """Return the candidates with their scores, the best first.

    A search that was started again has several trials of a layer, of which the last counts.
    """
    rows: dict[int, studies.SearchedLayer] = {}
    for trial in study.get_trials(deepcopy=False):
        layer = trial.params.get(teacher_layer.OPTION)
        if layer is not None:
            steps_and_scores = sorted(trial.intermediate_values.items())
            scores = [studies.LayerScore(step=step, score=score) for step, score in steps_and_scores]
            state = _LAYER_STATES.get(trial.state, "waiting")
            rows[layer] = studies.SearchedLayer(layer=layer, scores=scores, state=state)

    def last_step_and_score(row: studies.SearchedLayer) -> tuple[int, float]:
        last = row.scores[-1]
        # A score that was not a number is missing, and counts as 0.
        return last.step, last.score or 0.0

    # Worse candidates are dropped from training earlier.
    scored = [row for row in rows.values() if row.scores]
    scored.sort(key=last_step_and_score, reverse=True)
    unscored = [row for row in rows.values() if not row.scores]
    unscored.sort(key=lambda row: row.layer)
    best = scored[0] if scored else None
    return {"layers": [*scored, *unscored], "scores": list(LAYER_SCORES), "best": best}
