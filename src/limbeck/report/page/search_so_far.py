"""What the study of a search holds before the search is finished, as its record will have it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.report.page.plain_values import mapping, number, texts
from limbeck.search.architecture import shape_fields
from limbeck.search.genetic_sampler import generation_key
from limbeck.search.layer_race import OPTION
from limbeck.search.mapping_trials import SCORE
from limbeck.search.scores import SCORES
from limbeck.search.shape_space import pareto_front
from limbeck.search.shape_trials import read_shapes
from limbeck.search.study import IDENTITY
from limbeck.search.trials import parameter

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
    """Every generation that has a value, also the one that is under way."""
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
    shapes = [shape_fields(point, trial) for point, trial in read_shapes(trials).settled.items()]
    trained = [shape for shape in shapes if shape["state"] == "trained"]
    front = pareto_front([(shape["loss"], shape["latency_share"]) for shape in trained])
    return {
        "shapes": shapes,
        "front": [trained[index]["trial"] for index in front],
        "best": max(trained, key=lambda shape: shape["reward"], default=None),
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
