"""Classes of the stages of a run: their names where a stage's own teacher has none, and their weights.

A classifier's configuration names its classes in the order of its outputs. Rows are *numbered* by these names: a row
with the label "entailment" gets the number of that output. A stage *reads scores* if its teacher's head is used; it
then has a `teacher_head`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from limbeck.core.kinds import kind_of
from limbeck.corpus.rows.classes import read_weights
from limbeck.corpus.settings import LabelledSettings
from limbeck.errors import RecipeError
from limbeck.evaluation.tasks.corpus_rows import TaskRows
from limbeck.recipe.labelled_rows import with_classes_of
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.stage_terms import takes_class_weights


def with_class_names(stages: list[StagePlan]) -> list[StagePlan]:
    """Number the rows of stages that read no scores by the classes of a teacher whose scores another stage reads.

    The teacher of a stage that reads no scores need not be a classifier, so that its configuration may not name the
    classes of the rows. Rows of another task that is known by name keep the classes of that task.
    """
    naming_stage = _naming_stage(stages)
    if naming_stage is None:
        return stages

    named_stages = []
    for stage in stages:
        if isinstance(stage.corpus, LabelledSettings) and _takes_names_of(stage, naming_stage):
            named_stages.append(replace(stage, corpus=with_classes_of(stage.corpus, naming_stage.teacher)))
        else:
            named_stages.append(stage)
    return named_stages


def _naming_stage(stages: Sequence[StagePlan]) -> StagePlan | None:
    """The stage whose teacher names the classes.

    It is the first stage that reads a classifier's scores, or else the first that trains a student's classifier.
    """
    with_classes = [stage for stage in stages if kind_of(stage.teacher_head or stage.student_head).has_classes]
    for stage in with_classes:
        if stage.teacher_head is not None:
            return stage
    return with_classes[0] if with_classes else None


def _takes_names_of(stage: StagePlan, naming_stage: StagePlan) -> bool:
    """Whether the rows of a stage are numbered by the teacher of another stage, the naming stage."""
    # The stage's own teacher has names for its classes, or its rows have no classes.
    if stage.teacher_head is not None or not kind_of(stage.pairing.task).has_classes:
        return False
    reads_scores = naming_stage.teacher_head is not None
    # A head that the stage trains on labels alone gets the classes of the stage's own rows, if its student is the
    # stage's own, or if no stage reads scores.
    learns_own_classes = stage.student_head is not None and (stage.student is not None or not reads_scores)
    if learns_own_classes:
        return False
    # Rows of files have no names of their own. Those of a task that is known by name keep the task's names, unless the
    # naming stage reads the same task.
    assert isinstance(stage.corpus, LabelledSettings)
    if stage.corpus.rows is None:
        return True
    return reads_scores and _read_same_task(stage, naming_stage)


def _read_same_task(*stages: StagePlan) -> bool:
    """Whether the rows of all stages are of the same task that is known by name."""
    definitions = []
    for stage in stages:
        rows = stage.corpus.rows if isinstance(stage.corpus, LabelledSettings) else None
        if not isinstance(rows, TaskRows):
            return False
        definitions.append(rows.definition)
    return all(definition == definitions[0] for definition in definitions)


def with_class_weights(stages: Sequence[StagePlan], recipe: Recipe) -> list[StagePlan]:
    """Read the weights of classes, and refuse weights that have no effect since no stage learns hard labels.

    Raises:
        RecipeError: for weights that no stage reads, and for weights of classes that the rows do not have.
    """
    weighted = []
    # Whether some stage reads the weights, by their place in the recipe. Stages without a corpus of their own share
    # those of the recipe's corpus, and one stage that reads them is enough.
    is_read_by_place: dict[str, bool] = {}
    for index, stage in enumerate(stages):
        corpus = stage.spec.corpus or recipe.corpus
        task = None if corpus is None else corpus.task
        if task is None or task.class_weights is None:
            weighted.append(stage)
            continue
        place = "corpus.task.class_weights"
        if stage.spec.corpus is not None:
            place = f"stages.{index}.{place}"
        assert isinstance(stage.corpus, LabelledSettings)
        weights = read_weights(task.class_weights, stage.corpus.labels, place)
        weighted.append(replace(stage, class_weights=weights))
        reads_weights = any(takes_class_weights(term) for term in stage.terms)
        is_read_by_place[place] = is_read_by_place.get(place, False) or reads_weights

    for place, is_read in is_read_by_place.items():
        if not is_read:
            raise RecipeError(
                f"{place} is for hard labels, but no stage reads any; give a method a share of them "
                "(hard_label_weight above 0, or soft_label_share below 1), or leave the weights out."
            )
    return weighted
