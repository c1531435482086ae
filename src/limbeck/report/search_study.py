"""The study of a search, read from the journal in its folder: nothing is written, locked or waited for."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
import psutil
from optuna.exceptions import OptunaError
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.core.blocks import DAMAGED
from limbeck.core.records import plain
from limbeck.report.findings import last_sign
from limbeck.report.records import mapping, number, text, texts
from limbeck.search.architecture import SAME_AS, best_and_front, read_shapes, shape_fields
from limbeck.search.genetic_sampler import generation_key, parameter
from limbeck.search.mapping import SCORE
from limbeck.search.requests import JOURNAL
from limbeck.search.scores import LAYER_SCORES as SCORES
from limbeck.search.study import DIVERGED, IDENTITY
from limbeck.search.teacher_layer import OPTION
from limbeck.search.workers import BEAT_SECONDS, MISSED_BEATS, machine, worker_key

_MOST_BYTES = 400 * 2**20


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
        if path.stat().st_size > _MOST_BYTES:
            return None, (f"'{JOURNAL}' is larger than {_MOST_BYTES // 2**20} MB, and is not read.",)
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


def so_far(kind: str, study: Study) -> dict[str, Any]:
    """Read what a search has found until now.

    Args:
        kind: Of the search.
        study: Its study.

    Returns:
        Fields of a finished search's record, as far as they are known: `generations`, `candidates`, `scores` of a
        search of mappings; `shapes`, `front`, `limits` of one of shapes; `layers`, `scores` of one of teacher layers;
        `best` and `identity` of all. `best` is None before anything was measured.
    """
    trials = study.get_trials(deepcopy=False)
    identity = mapping(study.user_attrs.get(IDENTITY))
    readers = {"mapping": _mappings, "architecture": _shapes, "teacher-layer": _layers}
    found = readers[kind](trials, study.user_attrs) if kind in readers else {}
    return {"identity": identity, **found}


def _mappings(trials: Sequence[FrozenTrial], attributes: Mapping[str, Any]) -> dict[str, Any]:
    by_gene: dict[str, dict[str, Any]] = {}
    for trial in trials:
        gene, layers = trial.user_attrs.get("genome"), _mapping_of(trial)
        if trial.state == TrialState.COMPLETE and isinstance(gene, str) and layers:
            scores = {name: value for name, value in trial.user_attrs.items() if name.startswith(SCORE)}
            candidate = {
                "mapping": layers,
                "gene": gene,
                "fitness": trial.value,
                "scores": {name.removeprefix(SCORE): value for name, value in scores.items()},
                "generation": trial.user_attrs.get("generation"),
            }
            by_gene.setdefault(gene, candidate)
    candidates = sorted(by_gene.values(), key=lambda candidate: -candidate["fitness"])
    best = candidates[0] if candidates else None
    return {
        "generations": _generations(attributes, by_gene),
        "candidates": candidates,
        "scores": list(best["scores"]) if best else [],
        "best": best,
    }


def _mapping_of(trial: FrozenTrial) -> list[int]:
    layers: list[int] = []
    while (name := parameter(len(layers) + 1)) in trial.params:
        layers.append(trial.params[name])
    return layers


def _generations(attributes: Mapping[str, Any], by_gene: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every generation that has a value, also the unfinished one."""
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    number_ = 1
    while generation_key(number_) in attributes:
        genes = texts(attributes[generation_key(number_)], "genomes")
        members = [gene for gene in genes if gene in by_gene]
        values = [by_gene[gene]["fitness"] for gene in members]
        if members:
            best = max(members, key=lambda gene: by_gene[gene]["fitness"])
            rows.append(
                {
                    "number": number_,
                    "maximum": max(values),
                    "minimum": min(values),
                    "mean": statistics.fmean(values),
                    "deviation": statistics.pstdev(values),
                    "best": by_gene[best]["mapping"],
                    "best_gene": best,
                    "size": len(genes),
                    "evaluated": len({*members} - seen),
                    "members": members,
                }
            )
        seen.update(genes)
        number_ += 1
    return rows


def _shapes(trials: Sequence[FrozenTrial], attributes: Mapping[str, Any]) -> dict[str, Any]:
    shapes = [shape_fields(point, trial) for point, trial in read_shapes(trials).done.items()]
    best, front = best_and_front(shapes)
    return {
        "shapes": plain(shapes),
        "front": front,
        "best": plain(best),
        "limits": {"latency_share": number(attributes.get(IDENTITY), "limit.latency_share")},
    }


def _layers(trials: Sequence[FrozenTrial], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Every candidate with its scores; one that was begun again counts from its last beginning."""
    rows = {
        trial.params[OPTION]: {
            "layer": trial.params[OPTION],
            "scores": [{"step": step, "score": score} for step, score in sorted(trial.intermediate_values.items())],
            "state": _LAYER_STATES.get(trial.state, "waiting"),
        }
        for trial in trials
        if OPTION in trial.params
    }
    scored = [row for row in rows.values() if row["scores"]]
    ranked = sorted(scored, key=lambda row: (row["scores"][-1]["step"], row["scores"][-1]["score"]), reverse=True)
    unscored = sorted((row for row in rows.values() if not row["scores"]), key=lambda row: row["layer"])
    return {"layers": [*ranked, *unscored], "scores": list(SCORES), "best": ranked[0] if ranked else None}


# How a search that is not finished stands: who works on it, what its trials came to, its last sign of life.


_SAME, _DIVERGED = "of shapes that were tried before", "diverged"
_STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.RUNNING: "begun",
    TrialState.WAITING: "waiting",
    TrialState.PRUNED: "ended early",
    TrialState.FAIL: "failed",
}
_SAME_PROCESS = 1.0  # Seconds between two readings of when a process was started.


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


def _worker(sign: Any, silent: float) -> str:
    """Judge a worker by its process where this machine can see it, else by the age of the last sign of any."""
    if mapping(sign).get("ended"):
        return "ended"
    if text(sign, "machine") == machine():
        return "at work" if _process_lives(sign) else "gone"
    return "at work" if silent <= MISSED_BEATS * (number(sign, "interval") or BEAT_SECONDS) else "gone"


def _process_lives(sign: Mapping[str, Any]) -> bool:
    found, started = number(sign, "process"), number(sign, "started")
    try:
        process = psutil.Process(int(found)) if found is not None and found >= 0 else None
        if process is None or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or abs(process.create_time() - started) <= _SAME_PROCESS
    except (psutil.NoSuchProcess, OverflowError, ValueError):
        return False
    except psutil.AccessDenied:
        return True


def _counted(counts: Counter[str], order: tuple[str, ...]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in order if counts[name])
