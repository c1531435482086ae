"""What makes the values of two searches comparable: teacher, text and everything of the run that is computed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from limbeck.corpus import Corpus
from limbeck.evaluation.cell import model_fingerprint
from limbeck.methods.registry import METHODS
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.training_arguments import bf16_is_fast

_NOT_COMPUTED = {"name", "output", "evaluation"}
"""Keys of a recipe that change nothing that is computed."""


def proxy_identity(
    plan: RunPlan, corpora: Sequence[Corpus], share: float, *, searched: Collection[str] = ()
) -> dict[str, Any]:
    """Return what a study must have been made with to be continued, by dotted names.

    Models and text are told by what is in them, not by where they are, so that machines may keep them elsewhere.

    Args:
        plan: Of the proxy's recipe.
        corpora: Of its stages.
        share: Of the text that is trained on.
        searched: Options of methods that the search decides.
    """
    recipe = plan.recipe.model_dump(mode="json", exclude=_NOT_COMPUTED)
    teacher, corpus = recipe.pop("teacher"), recipe.pop("corpus")
    stages = [_stage(stage, searched) for stage in recipe.pop("stages")]
    found = {
        "teacher": model_fingerprint(plan.recipe.teacher.model),
        "corpus": [corpus.path.name for corpus in corpora],
        "share": share,
        "teacher.dtype": teacher["dtype"],
        "teacher.revision": teacher["revision"],
        **flat({"corpus": _without_sources(corpus)}),
        **flat(recipe),
        **flat({"stages": {str(index): stage for index, stage in enumerate(stages)}}),
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted names, so that the first that differs can be named."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _stage(stage: dict[str, Any], searched: Collection[str]) -> dict[str, Any]:
    """A stage with every default, without what is searched."""
    name = stage["method"]["name"]
    given = {key: value for key, value in stage["method"].items() if key != "name"}
    options = METHODS[name].options.model_validate(given).model_dump(mode="json")
    training = dict(stage["training"])
    if not {"bf16", "fp16"} & training.keys():
        training["bf16"] = bf16_is_fast()  # Machines that compute in another number format find other values.
    kept = {key: value for key, value in options.items() if key not in searched}
    corpus = _without_sources(stage["corpus"])
    return {**stage, "corpus": corpus, "method": {"name": name, **kept}, "training": training}


def _without_sources(corpus: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (corpus or {}).items() if key != "sources"}
