"""The identity of a run that is searched: its teacher, its text, and all of it that is computed."""

from collections.abc import Mapping, Sequence
from typing import Any

from limbeck.core.devices import bf16_is_fast
from limbeck.core.records import flat
from limbeck.corpus import Corpus
from limbeck.methods.registry import METHODS
from limbeck.models.fingerprint import model_fingerprint
from limbeck.recipe.known_by_content import without_places
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.schema import NOT_COMPUTED


def proxy_identity(plan: RunPlan, corpora: Sequence[Corpus], share: float) -> dict[str, Any]:
    """Return what values of two runs must have in common to be compared, by dotted names.

    Models and text are known by their content, not by their place, so that machines may keep them elsewhere.

    Args:
        plan: Of a candidate's recipe.
        corpora: Of its stages.
        share: Of the text that is trained on.
    """
    recipe = plan.recipe.model_dump(mode="json", exclude=NOT_COMPUTED)
    teacher, corpus = recipe.pop("teacher"), recipe.pop("corpus")
    stages = [_stage(stage) for stage in recipe.pop("stages")]
    return {
        "teacher": model_fingerprint(plan.recipe.teacher.model),
        "corpus": [view.identity for corpus in corpora for view in corpus.views],
        "share": share,
        "teacher.dtype": teacher["dtype"],
        "teacher.revision": teacher["revision"],
        **{f"teacher.{key}": teacher[key] for key in ("precision",) if key in teacher},
        **flat({"corpus": _without_sources(corpus)}),
        **flat(recipe),
        **flat({"stages": {str(index): stage for index, stage in enumerate(stages)}}),
    }


def _stage(stage: dict[str, Any]) -> dict[str, Any]:
    """A stage with every default."""
    method_options = dict(stage["method"])
    name = method_options.pop("name")
    options = METHODS[name].options.model_validate(method_options).deciding()
    training = dict(stage["training"])
    if not {"bf16", "fp16"} & training.keys():
        training["bf16"] = bf16_is_fast()  # Machines that compute in another number format find other values.
    corpus = _without_sources(stage["corpus"])
    return {**stage, "corpus": corpus, "method": {"name": name, **options}, "training": training}


def _without_sources(corpus: Mapping[str, Any] | None) -> dict[str, Any]:
    corpus_content = without_places({"corpus": corpus or {}})["corpus"]
    return {key: value for key, value in corpus_content.items() if key != "sources"}
