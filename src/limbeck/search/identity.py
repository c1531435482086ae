"""The identity of a run that is searched: the settings that the results of its candidates depend on.

Searches of the same identity can share a study, since values of its trials can be compared; see `engine.py`.
"""

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
    """Return the settings, by dotted names, that two runs must share for their scores to be comparable.

    Models and text are known by their content, not by their place, so that machines may keep them elsewhere.

    Args:
        plan: The plan of a candidate's run.
        corpora: The corpora of its stages.
        share: Share of the text that is trained on.
    """
    recipe = plan.recipe.model_dump(mode="json", exclude=NOT_COMPUTED)
    # These three parts name places, which are left out of the identity. All other keys count as they are.
    teacher = recipe.pop("teacher")
    corpus = recipe.pop("corpus")
    stages = recipe.pop("stages")
    # The names and values are those that studies of earlier versions hold.
    identity: dict[str, Any] = {
        "teacher": _teacher_identity(plan),
        "corpus": [view.identity for corpus in corpora for view in corpus.views],
        "share": share,
        "teacher.dtype": teacher["dtype"],
        "teacher.revision": teacher["revision"],
    }
    if "precision" in teacher:
        identity["teacher.precision"] = teacher["precision"]
    identity |= flat({"corpus": _without_sources(corpus)})
    identity |= flat(recipe)
    stages_by_number = {str(number): _whole_stage(stage) for number, stage in enumerate(stages)}
    identity |= flat({"stages": stages_by_number})
    return identity


def _teacher_identity(plan: RunPlan) -> str:
    """The hash of a teacher's files; where another teaching takes the place of the model, with its identity."""
    identity_of_teaching = plan.teacher_info.facts.identity
    if not plan.teacher_info.is_known_model:
        return identity_of_teaching
    fingerprint = model_fingerprint(plan.recipe.teacher.model)
    if not identity_of_teaching:
        return fingerprint
    return f"{fingerprint} {identity_of_teaching}"


def _whole_stage(stage: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a stage that its results depend on, for the identity by which a study is recognised.

    Defaults of the method and the number format are filled in. The sources of the corpus are left out, since text is
    known by its content.

    Args:
        stage: The stage as a dictionary, with the settings that the recipe gives. Its `corpus` may be None.
    """
    options = dict(stage["method"])
    name = options.pop("name")
    # `deciding` returns all options with their defaults. It leaves out unset ones that a later version of the method
    # added, so that earlier studies keep their identity.
    deciding_options = METHODS[name].options.model_validate(options).deciding()
    training = dict(stage["training"])
    if "bf16" not in training and "fp16" not in training:
        # Without a setting the machine decides the number format, on which values depend.
        training["bf16"] = bf16_is_fast()
    return {
        **stage,
        "corpus": _without_sources(stage["corpus"]),
        "method": {"name": name, **deciding_options},
        "training": training,
    }


def _without_sources(corpus: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of a corpus without its sources, which the identity has by their content."""
    # The function takes a part of a recipe that has a corpus.
    settings = without_places({"corpus": corpus or {}})["corpus"]
    return {key: value for key, value in settings.items() if key != "sources"}
