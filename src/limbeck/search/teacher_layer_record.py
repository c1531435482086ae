"""The record of a search of teacher layers, as plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from optuna.study import Study

from limbeck.core.machine import git_commit, hardware, versions
from limbeck.search.layer_candidates import with_teacher_layer
from limbeck.search.layer_race import Racer, ranking
from limbeck.search.layer_scores import SCORES, score_of
from limbeck.search.storage import shown
from limbeck.search.study import IDENTITY
from limbeck.search.teacher_layer_request import TeacherLayerSearch

KIND = "teacher-layer"
RESULT = "result"
"""Study attribute: what a finished search found; see `layer_result`."""


def layer_result(search: TeacherLayerSearch, racers: Sequence[Racer], seconds: float) -> dict[str, Any]:
    """Return what a search found, as its study keeps it.

    Returns:
        `layers`: a row for each candidate, best first, with its scores at every step that it was scored at, the steps
        that it trained, its state (`trained`, `cut`, `diverged`) and its own held-out loss. `seconds`: what all took.
        `created`: when.
    """
    rows = []
    for rank, index in enumerate(ranking(racers), start=1):
        racer = racers[index]
        rows.append(
            {
                "rank": rank,
                "layer": search.layers[index],
                "scores": [
                    {"step": step, "score": _plain(score_of(found))} | {k: _plain(v) for k, v in found.items()}
                    for step, found in sorted(racer.scores.items())
                ],
                "steps": racer.steps,
                "state": racer.state,
                "own_loss": _plain(racer.held_out.get("loss", math.nan)),
            }
        )
    return {"layers": rows, "seconds": round(seconds, 1), "created": datetime.now(UTC).isoformat(timespec="seconds")}


def teacher_layer_record(search: TeacherLayerSearch, study: Study) -> dict[str, Any]:
    """Return the record of a finished search.

    Returns:
        Plain values: `layers` (see `layer_result`), `best` (the first of them), `rungs`, `recipe` (the searched run,
        reading the best layer), `identity` and what it ran on.
    """
    request, plan = search.request, search.plan
    result = study.user_attrs[RESULT]
    best = result["layers"][0]
    return {
        "kind": KIND,
        "name": request.proxy.name,
        "status": "finished",
        "created": result["created"],
        "storage": shown(request.proxy.place),
        "identity": study.user_attrs[IDENTITY],
        "teacher": {"name": plan.teacher_choice.title, "shape": str(plan.teacher), "layers": plan.teacher.layers},
        "student": {"shape": str(plan.student)},
        "methods": list(dict.fromkeys(stage.method["name"] for stage in plan.recipe.stages)),
        "share": request.proxy.share,
        "scores": list(SCORES),
        "halving": request.halving,
        "rungs": [{"candidates": rung.candidates, "end": rung.end} for rung in search.rungs],
        "layers": result["layers"],
        "best": best,
        "recipe": with_teacher_layer(request.proxy.recipe, best["layer"]).model_dump(mode="json", exclude_unset=True),
        "cost": {"steps": sum(row["steps"] for row in result["layers"]), "seconds": result["seconds"]},
        "versions": {**versions(), "optuna": metadata.version("optuna")},
        "git_commit": git_commit(),
        "hardware": hardware(),
    }


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
