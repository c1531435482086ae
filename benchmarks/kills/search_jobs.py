"""Searching: layer mappings by generations, and teacher layers by halving, really trained and scored."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState

from limbeck.recipe.load import load_recipe
from limbeck.search.mapping import search_mapping
from limbeck.search.requests import JOURNAL, MappingRequest, ProxyRequest, TeacherLayerRequest
from limbeck.search.storage import open_storage
from limbeck.search.teacher_layer import search_teacher_layer

from .inputs import documents, write_model, write_text
from .job import Job, without_clocks

_NAME = "search"


class FrozenStudy(NamedTuple):
    """A study as it stood at a moment."""

    trials: list[FrozenTrial]
    attributes: dict[str, Any]


def prepare(inputs: Path) -> None:
    write_model(inputs / "teacher", layers=6)
    write_text(inputs / "text" / "0.txt", documents(80, seed=4))


def map_layers(inputs: Path, folder: Path) -> None:
    """Three generations of four students, two at once."""
    request = MappingRequest(_proxy(inputs, folder, {"name": "elm"}), generations=3, genetic={"population": 4}, batch=2)
    search_mapping(request)


def rank_layers(inputs: Path, folder: Path) -> None:
    """Six layers in three rounds."""
    search_teacher_layer(TeacherLayerRequest(_proxy(inputs, folder, {"name": "minilmv2", "relation_heads": 4})))


def kept(folder: Path) -> dict[str, Any]:
    """Every trial with a value, with its parameters and scores."""
    return {f"trial {trial['number']}": trial for trial in _trials(folder) if trial["state"] == "COMPLETE"}


def outcome(folder: Path) -> dict[str, Any]:
    """Values and scores of every candidate, whichever trial it was: one of each, if trials agree."""
    found: dict[str, Any] = {}
    for trial in _trials(folder):
        if trial["state"] in ("COMPLETE", "PRUNED"):
            values = {name: trial[name] for name in ("state", "value", "scores")}
            known = found.setdefault(str(trial["params"]), [])
            if values not in known:
                known.append(values)
    # Who worked on it is another matter.
    attributes = {name: value for name, value in _study(folder).attributes.items() if not name.startswith("worker ")}
    return {"candidates": dict(sorted(found.items())), "study": without_clocks(attributes)}


def _proxy(inputs: Path, folder: Path, method: dict[str, Any]) -> ProxyRequest:
    training = {"max_steps": 8, "per_device_train_batch_size": 8, "learning_rate": 3e-3, "bf16": False}
    recipe = {
        "output": str(folder / "unused"),
        "seed": 3,
        "teacher": {"model": str(inputs / "teacher")},
        "student": {"shape": {"layers": 3, "hidden": 24, "heads": 4, "ffn": 48}},
        "corpus": {"sources": [str(inputs / "text")], "length": 32, "held_out": 0.3},
        "stages": [{"method": method, "training": training}],
        "evaluation": {"enabled": False},
    }
    return ProxyRequest(load_recipe(recipe), folder, _NAME)


def _study(folder: Path) -> FrozenStudy:
    """Read a copy of the journal, since opening one mends it; nothing where there is no study yet."""
    journal = folder / JOURNAL
    if not journal.exists():
        return FrozenStudy([], {})
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copy(journal, temporary)
        try:
            study = optuna.load_study(study_name=_NAME, storage=open_storage(Path(temporary) / JOURNAL))
        except KeyError:
            return FrozenStudy([], {})
        return FrozenStudy(study.trials, study.user_attrs)


def _trials(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            "number": trial.number,
            "state": trial.state.name,
            "value": trial.value if trial.state == TrialState.COMPLETE else None,
            "params": trial.params,
            "scores": {name: value for name, value in trial.user_attrs.items() if name.startswith("score")}
            | {f"at step {step}": value for step, value in trial.intermediate_values.items()},
        }
        for trial in _study(folder).trials
    ]


JOBS = (
    Job("search", "mapping", prepare, map_layers, kept, outcome, frozenset({"trial"}), moves=True),
    Job("search", "teacher layer", prepare, rank_layers, kept, outcome, frozenset({"step"}), moves=True),
)
