"""Classes of the stages of a run: their names where a stage's own teacher has none, and their weights."""

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
    """Number the rows of stages that read no scores by the teacher of a stage that does.

    Their own teacher need not be a classifier, but their rows are labelled all the same. Rows of another task that is
    known by name keep its classes.
    """
    classifying = [stage for stage in stages if kind_of(stage.teacher_head or stage.student_head).has_classes]
    if not classifying:
        return stages
    scored = [stage for stage in classifying if stage.teacher_head is not None]
    named = scored[0] if scored else classifying[0]

    renamed = []
    for stage in stages:
        if isinstance(stage.corpus, LabelledSettings) and _takes_names_of(stage, named):
            renamed.append(replace(stage, corpus=with_classes_of(stage.corpus, named.teacher)))
        else:
            renamed.append(stage)
    return renamed


def _takes_names_of(stage: StagePlan, named: StagePlan) -> bool:
    """Whether the rows of a stage are numbered by the teacher of another."""
    if stage.teacher_head is not None or not kind_of(stage.pairing.task).has_classes:
        return False
    reads_scores = named.teacher_head is not None
    if stage.student_head is not None and (stage.student is not None or not reads_scores):
        return False  # It learns the classes of its own rows.
    assert isinstance(stage.corpus, LabelledSettings)
    if stage.corpus.rows is None:
        return True
    return reads_scores and _read_same_task(stage, named)


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
    """Read the weights of classes, and refuse those of a corpus that no stage learns hard labels from.

    Raises:
        RecipeError: for weights that no stage reads, or of other classes.
    """
    weighted = []
    is_read: dict[str, bool] = {}
    for number, stage in enumerate(stages):
        corpus, place = recipe.corpus, "corpus.task.class_weights"
        if stage.spec.corpus is not None:
            corpus, place = stage.spec.corpus, f"stages.{number}.{place}"
        weights = None if corpus is None or corpus.task is None else corpus.task.class_weights
        if weights is None:
            weighted.append(stage)
            continue
        assert isinstance(stage.corpus, LabelledSettings)
        weighted.append(replace(stage, class_weights=read_weights(weights, stage.corpus.labels, place)))
        reads_weights = any(takes_class_weights(term) for term in stage.terms)
        is_read[place] = is_read.get(place, False) or reads_weights

    for place in is_read:
        if not is_read[place]:
            raise RecipeError(
                f"{place} is for hard labels, but no stage reads any; give a method a share of them "
                "(hard_label_weight above 0, or soft_label_share below 1), or leave the weights out."
            )
    return weighted
