"""Cross-field checks: a recipe against the configurations of its models, before any weight is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from transformers import PreTrainedConfig

from limbeck.corpus import LabelledSettings
from limbeck.errors import RecipeError
from limbeck.methods.composition import Term
from limbeck.models.blueprint import StudentBlueprint
from limbeck.models.families import Shape
from limbeck.models.heads import Head
from limbeck.models.locating import SentencePooling, sentence_pooling
from limbeck.recipe.corpus_plan import class_names
from limbeck.recipe.model_plan import StudentChoice, TeacherChoice, choose_student, choose_teacher
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_plan import StageChoice, plan_stage


@dataclass(frozen=True)
class RunPlan:
    """A recipe that has been checked against its models' configurations.

    Args:
        recipe: The recipe.
        teacher_choice: The recipe's teacher.
        student_choice: The recipe's student.
        sentence: Pooling that the teacher's folder names, or None.
        stages: The stages.
    """

    recipe: Recipe
    teacher_choice: TeacherChoice
    student_choice: StudentChoice
    sentence: SentencePooling | None
    stages: list[StageChoice]

    @property
    def teacher(self) -> Shape:
        """Shape of the recipe's teacher."""
        return self.teacher_choice.shape

    @property
    def student(self) -> Shape:
        """Shape of the recipe's student."""
        return self.student_choice.shape

    @property
    def student_config(self) -> PreTrainedConfig:
        """Configuration of the recipe's student, without dropout changes."""
        return self.student_choice.config

    @property
    def blueprint(self) -> StudentBlueprint:
        """The student's shape in full."""
        return self.student_choice.blueprint

    @property
    def own_stages(self) -> list[StageChoice]:
        """The stages that train the recipe's student."""
        return [stage for stage in self.stages if stage.student is None]

    @property
    def head(self) -> Head | None:
        """The head that the recipe's student is made with."""
        return next((stage.student_head for stage in self.own_stages if stage.student_head is not None), None)

    @property
    def pooling(self) -> str:
        """How sentence vectors are pooled: as the evaluation or the teacher's folder says, else the mean."""
        chosen = self.recipe.evaluation.pooling
        if chosen != "auto":
            return chosen
        return self.sentence.pooling if self.sentence is not None else "mean"


def plan_run(recipe: Recipe) -> RunPlan:
    """Check everything that can be checked without weights or text.

    Layers in range, heads that divide widths, equal heads where a method needs them, teachers that have the head
    whose scores are taught, lengths within positions, terms that couple samples without accumulation, tokenizers that
    agree, sources that exist.

    Args:
        recipe: The recipe.

    Returns:
        What the run will do.

    Raises:
        LimbeckError: one line for the first contradiction.
    """
    teacher = choose_teacher(recipe.teacher)
    student = choose_student(recipe.student, teacher)
    stages: list[StageChoice] = []
    for index in range(len(recipe.stages)):
        stages.append(plan_stage(index, recipe, teacher, student, stages))
    stages = _with_class_names(stages)
    student = _with_labels(student, [stage for stage in stages if stage.student is None and stage.student_head])
    return RunPlan(recipe, teacher, student, sentence_pooling(recipe.teacher.model), stages)


def _with_class_names(stages: list[StageChoice]) -> list[StageChoice]:
    """Let stages that read no scores know the classes by the teacher of a stage that does.

    Their own teacher need not be a classifier, but their rows are labelled all the same.
    """
    classifiers = [s for s in stages if "classification" in (s.teacher_head, s.student_head)]
    if not classifiers:
        return stages
    names = class_names(classifiers[0].teacher)
    return [
        replace(s, corpus=replace(s.corpus, labels=names))
        if isinstance(s.corpus, LabelledSettings) and s.pairing.task == "classification" and s not in classifiers
        else s
        for s in stages
    ]


def _with_labels(student: StudentChoice, stages: list[StageChoice]) -> StudentChoice:
    """Give the student the outputs of the task that its stages teach: those of the teacher who teaches it.

    Args:
        student: The recipe's student.
        stages: The stages that train its head.
    """
    kinds = {
        (stage.student_head, stage.teacher.config.num_labels if stage.pairing.task != "text" else 0) for stage in stages
    }
    if len(kinds) > 1:
        raise RecipeError(
            f"The stages {[stage.spec.title for stage in stages]} train heads for different tasks "
            f"({', '.join(sorted(str(head) for head, _ in kinds))}), and a student has one; make two recipes, the "
            "second starting from the first's student (initialise.checkpoint)."
        )
    if not stages or stages[0].pairing.task == "text":
        return student
    taught_by = stages[0].teacher.config
    config = type(student.config)(**student.config.to_dict())
    for name in ("id2label", "label2id", "problem_type"):
        setattr(config, name, getattr(taught_by, name, None))
    return replace(student, config=config)


def summarise(plan: RunPlan) -> Mapping[str, str]:
    """Describe a plan in a few lines, for people."""
    lines = {"teacher": f"{plan.recipe.teacher.model} ({plan.teacher})", "student": str(plan.student)}
    for index, stage in enumerate(plan.stages):
        who = "" if stage.student is None else f"makes {stage.student.shape}: "
        by = "" if stage.spec.teacher is None else f"taught by {stage.teacher.title}: "
        terms = ", ".join(map(_summarise_term, stage.terms))
        lines[f"stage {index + 1}: {stage.spec.title}"] = who + by + terms
    return lines


def _summarise_term(term: Term) -> str:
    student, teacher = (", ".join(map(str, keys)) for keys in (term.student, term.teacher))
    return f"{term.weight:g} x {term.objective}({student}{' <- ' if teacher else ''}{teacher})"
