"""The record of a mapping search: all that its study knows, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from limbeck.core.machine import git_commit, hardware, versions
from limbeck.search.generations import generation_rows
from limbeck.search.genetic_sampler import generation_key
from limbeck.search.genome import to_binary
from limbeck.search.mapping_candidates import with_mapping
from limbeck.search.mapping_fitness import PROBLEM, SCORE, SCORING_SECONDS, TRAINING_SECONDS
from limbeck.search.mapping_request import MappingSearch
from limbeck.search.mapping_space import MappingSpace
from limbeck.search.storage import shown
from limbeck.search.study import IDENTITY
from limbeck.search.trials import DIVERGED, genome_of

KIND = "mapping"


def mapping_record(search: MappingSearch, study: Study, scores: Sequence[str]) -> dict[str, Any]:
    """Return the record of a search.

    Args:
        search: The search.
        study: Its study.
        scores: The names of the scores whose mean is the fitness.

    Returns:
        Plain values: `generations` (the paper's table 5, with the members of each), `candidates` (every mapping that
        has a fitness, best first), `best` (the first of them), `recipe` (the searched run with the best mapping),
        `cost`, `identity` and what it ran on.
    """
    proxy, plan, space = search.request.proxy, search.plan, search.space
    trials = study.get_trials(deepcopy=False)
    candidates = _candidates(trials, space)
    by_gene = {candidate["gene"]: candidate for candidate in candidates}
    recipe = with_mapping(proxy.recipe, tuple(candidates[0]["mapping"])) if candidates else None
    return {
        "kind": KIND,
        "name": proxy.name,
        "status": "finished",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "storage": shown(proxy.place),
        "identity": study.user_attrs[IDENTITY],
        "teacher": {"name": plan.teacher_choice.title, "shape": str(plan.teacher)},
        "student": {"shape": str(plan.student)},
        "methods": list(dict.fromkeys(stage.method["name"] for stage in plan.recipe.stages)),
        "space": {"size": space.size, **space.description},
        "scores": list(scores),
        "share": proxy.share,
        "generations": _generations(study, space, by_gene),
        "candidates": candidates,
        "best": candidates[0] if candidates else None,
        "recipe": None if recipe is None else recipe.model_dump(mode="json", exclude_unset=True),
        "cost": _cost(trials, candidates),
        "given_up": _given_up(trials, space, by_gene),
        "versions": {**versions(), "optuna": metadata.version("optuna")},
        "git_commit": git_commit(),
        "hardware": hardware(),
    }


def _candidates(trials: Sequence[FrozenTrial], space: MappingSpace) -> list[dict[str, Any]]:
    """Every evaluated mapping, once, by fitness; of equals the first that was tried."""
    found: dict[str, dict[str, Any]] = {}
    for trial in trials:
        genome = genome_of(trial, space)
        if trial.state != TrialState.COMPLETE or genome is None:
            continue
        attributes = trial.user_attrs
        gene = to_binary(genome, space.bits)
        found.setdefault(
            gene,
            {
                "mapping": list(space.decode(genome)),
                "gene": gene,
                "fitness": trial.value,
                "scores": {name.removeprefix(SCORE): attributes[name] for name in attributes if name.startswith(SCORE)},
                "generation": attributes.get("generation"),
                "trial": trial.number,
                "training_seconds": attributes.get(TRAINING_SECONDS),
                "scoring_seconds": attributes.get(SCORING_SECONDS),
            },
        )
    return sorted(found.values(), key=lambda candidate: -candidate["fitness"])


def _generations(study: Study, space: MappingSpace, by_gene: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for row in generation_rows(study, space):
        kept = study.user_attrs[generation_key(row.number)]
        rows.append(
            {
                "number": row.number,
                "maximum": row.maximum,
                "minimum": row.minimum,
                "mean": row.mean,
                "deviation": row.deviation,
                "best": list(row.best),
                "best_gene": row.best_gene,
                "size": row.size,
                "evaluated": row.evaluated,
                "members": [gene for gene in kept["genomes"] if gene in by_gene],
                "breeding": kept["breeding"],
            }
        )
    return rows


def _cost(trials: Sequence[FrozenTrial], candidates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What it took, with what was lost: trials that failed are counted, and their time is where it is known."""
    return {
        "evaluations": len(candidates),
        "failed": sum(trial.state == TrialState.FAIL for trial in trials),
        "training_seconds": round(sum(trial.user_attrs.get(TRAINING_SECONDS, 0.0) for trial in trials), 1),
        "scoring_seconds": round(sum(trial.user_attrs.get(SCORING_SECONDS, 0.0) for trial in trials), 1),
    }


def _given_up(
    trials: Sequence[FrozenTrial], space: MappingSpace, by_gene: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Mappings that came to no fitness, and why at last."""
    found: dict[str, dict[str, Any]] = {}
    for trial in trials:
        genome = genome_of(trial, space)
        if genome is None or not trial.user_attrs.get(DIVERGED):
            continue
        gene = to_binary(genome, space.bits)
        if gene not in by_gene:
            problem = trial.user_attrs.get(PROBLEM, "it came to no finite fitness")
            found[gene] = {"mapping": list(space.decode(genome)), "gene": gene, "problem": problem}
    return list(found.values())
