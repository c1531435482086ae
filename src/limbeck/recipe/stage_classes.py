"""Classes of the stages of a run: their names where a stage's own teacher has none, and their weights.

A classifier's configuration names its classes in the order of its outputs. Rows are *numbered* by these names: a row
with the label "entailment" gets the number of that output.

A stage *reads scores* if its student learns the outputs of its teacher's head; `teacher_head` is then the kind of that
head, and otherwise None. A stage *trains a head* if its student needs one, named by `student_head`. A stage that trains
a head and reads no scores learns the labels of its rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from limbeck.core.kinds import kind_of
from limbeck.corpus.rows.classes import read_weights
from limbeck.corpus.settings import LabelledSettings
from limbeck.errors import RecipeError
from limbeck.evaluation.tasks.corpus_rows import TaskRows
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.recipe.labelled_rows import with_classes_of
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.stage_terms import takes_class_weights


def with_class_names(stages: list[StagePlan]) -> list[StagePlan]:
    """Give the stages whose own teacher may name no classes the class names of another stage's teacher.

    A stage that learns no scores of its teacher may have one that is no classifier. The classes of its rows are then
    named, and numbered, by the teacher of the *naming stage*.
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
    """The stage whose teacher names the classes; None where no stage has a head with classes.

    It is the first stage that reads a classifier's scores, or else the first that trains a student's classifier.
    """
    for stage in stages:
        if stage.teacher_head is not None and kind_of(stage.teacher_head).has_classes:
            return stage
    for stage in stages:
        if stage.teacher_head is None and kind_of(stage.student_head).has_classes:
            return stage
    return None


def _takes_names_of(stage: StagePlan, naming_stage: StagePlan) -> bool:
    """Whether the rows of a stage get the class names and numbers of the naming stage's teacher.

    Args:
        stage: The stage. Its `teacher_head` is None if it does not learn scores of its teacher.
        naming_stage: The stage whose teacher has class names, see `_naming_stage`.
    """
    if not kind_of(stage.pairing.task).has_classes:
        return False
    # A stage that reads scores has them in the order of its own teacher's classes.
    if stage.teacher_head is not None:
        return False

    # A head that is trained on labels alone gets the classes of the stage's own rows, in two cases. It may be the head
    # of another student than the recipe's. Or no stage of the run reads scores, whose order the head would have to
    # keep.
    trains_head = stage.student_head is not None
    trains_another_student = stage.student is not None
    run_reads_scores = naming_stage.teacher_head is not None
    if trains_head and (trains_another_student or not run_reads_scores):
        return False

    # Rows of files (`rows` is None) come without names of classes. Those of a task that is known by its name, such as
    # `mnli`, keep the names of the task, unless the naming stage reads scores on the same task.
    assert isinstance(stage.corpus, LabelledSettings)
    if stage.corpus.rows is None:
        return True
    return run_reads_scores and _read_same_task(stage, naming_stage)


def _read_same_task(first: StagePlan, second: StagePlan) -> bool:
    """Whether the rows of two stages are of the same task that is known by its name."""
    first_task = _named_task(first)
    return first_task is not None and first_task == _named_task(second)


def _named_task(stage: StagePlan) -> TaskDefinition | None:
    """The task of a stage's rows, if it is known by its name; None for rows of files and for text."""
    if not isinstance(stage.corpus, LabelledSettings):
        return None
    rows = stage.corpus.rows
    if not isinstance(rows, TaskRows):
        return None
    return rows.definition


def with_class_weights(stages: Sequence[StagePlan], recipe: Recipe) -> list[StagePlan]:
    """Read the weights of classes, and refuse weights that have no effect since no stage learns hard labels.

    Raises:
        RecipeError: for weights that no stage reads, and for weights of classes that the rows do not have.
    """
    weighted_stages = []
    # Each place in the recipe that gives weights, with whether a stage reads them. Stages without a corpus of their own
    # share the weights of the recipe's corpus, and one stage that reads them is enough.
    is_read_by_place: dict[str, bool] = {}
    for index, stage in enumerate(stages):
        corpus = stage.spec.corpus or recipe.corpus
        task = None if corpus is None else corpus.task
        if task is None or task.class_weights is None:
            weighted_stages.append(stage)
            continue
        place = "corpus.task.class_weights"
        if stage.spec.corpus is not None:
            place = f"stages.{index}.{place}"
        assert isinstance(stage.corpus, LabelledSettings)
        weights = read_weights(task.class_weights, stage.corpus.labels, place)
        weighted_stages.append(replace(stage, class_weights=weights))
        stage_reads_weights = any(takes_class_weights(term) for term in stage.terms)
        is_read_by_place[place] = stage_reads_weights or is_read_by_place.get(place, False)

    for place, is_read in is_read_by_place.items():
        if not is_read:
            raise RecipeError(
                f"{place} weights the classes of hard labels, but no stage learns hard labels; give the method a "
                "share of them (hard_label_weight above 0, or soft_label_share below 1), or leave it out."
            )
    return weighted_stages
