"""The outputs of a student's head: those of the task that its stages teach.

A stage that learns a teacher's scores has a `teacher_head`; one that learns labels alone has only a `student_head`.
Classes are *made up* where they have no names but `LABEL_0`, `LABEL_1` and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transformers import PreTrainedConfig

from limbeck.core.kinds import LabelKind, are_made_up, kind_of
from limbeck.core.lists import enumerate_words
from limbeck.errors import RecipeError
from limbeck.models.cross_encoders import cross_encoder_settings
from limbeck.models.heads import head_of
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo
from limbeck.recipe.stage_plan import StagePlan

_SHOWN_CHARACTERS = 80
"""Most characters of foreign text in a message."""
_WAY_OUT = "make two recipes, and start the second from the student of the first (student.initialise.checkpoint)."

_LABELS_IN_WORDS: dict[LabelKind, str] = {
    "class": "classes",
    "classes": "classes",
    "token": "tags",
    "value": "values",
    "span": "answers",
    "relevance": "scores of documents",
}
"""What a method would teach a student by labels of each kind."""


def describe_missing_head(stages: Sequence[StagePlan]) -> str | None:
    """Say that a run on labelled rows trains no head for their task, and which methods do.

    Args:
        stages: All stages of the run.

    Returns:
        The sentences; None for a run on text alone, and where a stage trains the head.
    """
    # A stage with a student of its own says nothing about the recipe's student.
    stages_on_rows = [stage for stage in stages if stage.student is None and stage.pairing.has_labels]
    if not stages_on_rows or any(stage.student_head is not None for stage in stages_on_rows):
        return None

    pairing = stages_on_rows[0].pairing
    methods = list(dict.fromkeys(str(stage.spec.method["name"]) for stage in stages_on_rows))
    verb = "teaches" if len(methods) == 1 else "teach"
    consequence = "the student has no head"
    if pairing.labelled:
        consequence = f"the labels of the rows are not used, and {consequence}"
    methods_with_head = ["output_distribution", "mlkd_bert"]
    if kind_of(pairing.task).has_queries:
        methods_with_head = ["reranker"]
    advised_methods = enumerate_words(methods_with_head, "or")
    return (
        f"{enumerate_words(methods, 'and')} {verb} no {_LABELS_IN_WORDS[pairing.label]}, so {consequence}. To train a "
        f"head, choose a method that teaches the teacher's scores, such as {advised_methods}."
    )


def with_outputs(student: StudentPlan, stages: Sequence[StagePlan]) -> StudentPlan:
    """Give a student the outputs of the task that its stages teach.

    If a stage learns a teacher's scores, the outputs are this teacher's. If all stages learn labels alone, they are the
    classes of the rows.

    Args:
        student: The student.
        stages: The stages that train its head.

    Returns:
        The student with these outputs in its configuration. It is unchanged where no stage trains the head of a task.

    Raises:
        RecipeError: for heads of different tasks, or classes of other names or in another order.
    """
    _check_one_head(stages)
    if not stages or not stages[0].pairing.has_labels:
        return student
    _check_same_classes(stages)

    # The stage whose classes the head gets.
    decisive = _decisive_stage(stages)
    # A copy, since the plan of the student is not changed.
    config = type(student.config)(**student.config.to_dict())
    _set_classes(config, decisive)
    kind = kind_of(decisive.student_head)
    # A head with a single output has a name for it in place of classes.
    if kind.output is not None:
        config.id2label = {0: kind.output}
        config.label2id = {kind.output: 0}

    # The files of a cross-encoder name the activation behind its scores, and the student takes it over. A teacher that
    # is the student of an earlier stage has no files, and neither has one of which only the outputs are known.
    teacher = decisive.teacher
    if kind.has_value and teacher.is_known_model and teacher.stage is None:
        settings = cross_encoder_settings(teacher.spec.model, teacher.config, teacher.spec.revision)
        if settings:
            config.sentence_transformers = settings

    # Only the problem type tells transformers' pipelines and losses that a row may have several classes.
    if kind.has_several:
        config.problem_type = kind.problem_type
    return replace(student, config=config)


def _decisive_stage(stages: Sequence[StagePlan]) -> StagePlan:
    """The stage that decides the outputs: a stage that learns scores first, then one whose classes have names."""

    # False comes before True, so that the lowest rank is a stage that learns scores of named classes.
    def rank(stage: StagePlan) -> tuple[bool, bool]:
        learns_labels_alone = stage.teacher_head is None
        return learns_labels_alone, are_made_up(stage.classes)

    return min(stages, key=rank)


def _set_classes(config: PreTrainedConfig, stage: StagePlan) -> None:
    """Write the classes of a stage into a student's configuration, in place."""
    teacher_config = stage.teacher.known_config
    # A stage that learns the scores of a model takes over its classes as they are.
    if stage.teacher_head is not None and teacher_config is not None:
        for name in ("id2label", "label2id", "problem_type"):
            setattr(config, name, getattr(teacher_config, name, None))
        return
    if stage.teacher_head is not None:
        # Only the scores of the teacher are known, as stored.
        classes = _classes_of_outputs(stage.teacher)
    else:
        # The stage learns the labels of its rows. Without any names the classes are transformers' own default.
        classes = stage.classes or ("LABEL_0", "LABEL_1")
    config.id2label = dict(enumerate(classes))
    config.label2id = {name: number for number, name in config.id2label.items()}
    config.problem_type = None
    if teacher_config is not None and head_of(teacher_config) == stage.student_head:
        config.problem_type = teacher_config.problem_type


def _classes_of_outputs(teacher: TeacherInfo) -> tuple[str, ...]:
    """Return the classes of a teacher of which only the scores are known; names are made up where it has none."""
    if teacher.labels:
        return teacher.labels
    count = teacher.facts.widths["logits"]
    return tuple(f"LABEL_{number}" for number in range(count))


def _check_one_head(stages: Sequence[StagePlan]) -> None:
    """Refuse stages that train heads of different tasks, or of different numbers of classes."""
    heads = {(stage.student_head, len(stage.classes)) for stage in stages}
    if len(heads) > 1:
        titles = [stage.spec.title for stage in stages]
        names = sorted({str(name) for name, _ in heads})
        raise RecipeError(
            f"The stages {titles} train heads for different tasks ({', '.join(names)}), but a student has only one "
            f"head; {_WAY_OUT}"
        )


def _check_same_classes(stages: Sequence[StagePlan]) -> None:
    """Refuse stages whose named classes differ, or stand in another order."""
    # The last stage of each list of classes.
    stage_by_classes: dict[tuple[str, ...], StagePlan] = {}
    for stage in stages:
        if not are_made_up(stage.classes):
            stage_by_classes[stage.classes] = stage
    if len(stage_by_classes) < 2:
        return
    first_stage, second_stage, *_ = stage_by_classes.values()
    raise RecipeError(
        f"Stage '{first_stage.spec.title}' trains the student's head for the classes {_list_classes(first_stage)}, "
        f"and stage '{second_stage.spec.title}' for {_list_classes(second_stage)}, but a student has only one "
        f"head; choose teachers with the same classes in the same order (id2label), or {_WAY_OUT}"
    )


def _list_classes(stage: StagePlan) -> str:
    """The classes of a stage, as far as a message shows them."""
    return ", ".join(stage.classes)[:_SHOWN_CHARACTERS]
