"""The plan of a run: a recipe checked against the configurations of its models, before any weight is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PreTrainedConfig

from limbeck.core.kinds import KINDS
from limbeck.corpus.settings import CorpusSettings, LabelledSettings, StageTextSpec
from limbeck.errors import RecipeError
from limbeck.evaluation.evaluators.head_match import match_head
from limbeck.evaluation.tasks.loading import check_scored
from limbeck.evaluation.tasks.registry import find_task
from limbeck.models.blueprint import StudentBlueprint
from limbeck.models.families import Shape
from limbeck.models.heads import Head, model_class
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling, finished_pooling
from limbeck.models.trial_run import check_runs
from limbeck.recipe.corpora import corpus_settings
from limbeck.recipe.facts import check_facts
from limbeck.recipe.labelled_rows import check_rows
from limbeck.recipe.mistakes import at_place
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo, plan_student, plan_teacher
from limbeck.recipe.models import TeacherSpec
from limbeck.recipe.plan_summary import summarise_plan
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_classes import with_class_names, with_class_weights
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.stage_planning import plan_stage
from limbeck.recipe.student_head import with_outputs

SCORE_LATER = "score it with `limbeck evaluate --as-is --classes`, which names them"
"""Way out where classes have other names."""


@dataclass(frozen=True, repr=False)
class RunPlan:
    """A recipe that has been checked against its models' configurations.

    Args:
        recipe: The recipe.
        teacher_info: The recipe's teacher.
        student_plan: The recipe's student.
        stages: The stages.
    """

    recipe: Recipe
    teacher_info: TeacherInfo
    student_plan: StudentPlan
    stages: list[StagePlan]

    def __repr__(self) -> str:
        """A plan in a few lines, as `limbeck validate` prints it."""
        return "\n".join(f"{name}: {text}" for name, text in self.summary().items())

    def summary(self) -> dict[str, str]:
        """The plan in a few lines, by their titles."""
        return summarise_plan(self.recipe, self.teacher_info, self.student_plan, self.stages)

    @property
    def teacher(self) -> Shape:
        """Shape of the recipe's teacher."""
        return self.teacher_info.shape

    @property
    def student(self) -> Shape:
        """Shape of the recipe's student."""
        return self.student_plan.shape

    @property
    def student_config(self) -> PreTrainedConfig:
        """Configuration of the recipe's student, without dropout changes."""
        return self.student_plan.config

    @property
    def blueprint(self) -> StudentBlueprint:
        """The student's shape in full."""
        return self.student_plan.blueprint

    @property
    def sentence(self) -> SentencePooling | None:
        """How the recipe's teacher makes sentence vectors, where its files say so."""
        return self.teacher_info.sentence

    @property
    def own_stages(self) -> list[StagePlan]:
        """The stages that train the recipe's student."""
        return [stage for stage in self.stages if stage.student is None]

    @property
    def head(self) -> Head | None:
        """The head that the recipe's student is made with."""
        heads = [stage.student_head for stage in self.own_stages if stage.student_head is not None]
        return heads[0] if heads else None

    @property
    def tasks_folder(self) -> Path | None:
        """The folder with the files of `evaluation.tasks`; None for the Hub.

        It is that of the evaluation, else of the last corpus that has one.
        """
        places = [self.recipe.evaluation.data]
        for stage in reversed(self.stages):
            corpus = stage.spec.corpus or self.recipe.corpus
            places.append(None if corpus is None else corpus.data)
        for place in places:
            if place is not None:
                return Path(place).expanduser()
        return None

    @property
    def text_alone(self) -> CorpusSettings | None:
        """The recipe's text where no stage reads it: a student as it starts is compared on what is held out of it."""
        corpus = self.recipe.corpus
        if self.stages or corpus is None or corpus.task is not None:
            return None
        settings = corpus_settings(corpus, StageTextSpec(), self.teacher_info)
        assert isinstance(settings, CorpusSettings)
        return settings

    @property
    def aligned_stage(self) -> StagePlan | None:
        """The last stage that teaches the recipe's student finished vectors, and so says how it makes them."""
        stages = [stage for stage in self.own_stages if stage.teaches_vectors]
        return stages[-1] if stages else None

    @property
    def vector_stages(self) -> list[StagePlan]:
        """The stages that teach the recipe's student sentence vectors, pooled or finished."""
        return [stage for stage in self.own_stages if stage.student_streams & {"pooled", "vector"}]

    @property
    def vector_teachers(self) -> dict[str, TeacherSpec]:
        """The models whose sentence vectors a stage teaches, by title; students of stages are not among them."""
        teachers = {}
        for stage in self.stages:
            if stage.teacher.stage is None and stage.teacher_streams & {"pooled", "vector"}:
                teachers[stage.teacher.title] = stage.teacher.spec
        return teachers

    @property
    def trained_widths(self) -> list[int]:
        """The widths below the whole to which those stages taught vectors to be cut, the widest first."""
        widths: set[int] = set()
        for stage in self.vector_stages:
            widths.update(stage.spec.method.get("truncate") or ())
        return sorted(widths, reverse=True)

    @property
    def pooling(self) -> str:
        """How sentence vectors are pooled: as the evaluation or the teacher's folder says, else the mean."""
        pooling = self.recipe.evaluation.pooling
        if pooling != "auto":
            return pooling
        return self.sentence.pooling if self.sentence is not None else "mean"

    @property
    def student_sentence(self) -> SentencePooling | None:
        """How the recipe's student makes sentence vectors, but for a map that it keeps; None where it makes none.

        As the teacher, or as a stage trained it to. A student of a task makes none, whatever its teacher was before it
        was fine-tuned.
        """
        if self.head not in (None, "masked_lm"):
            return None
        if self.aligned_stage is not None:
            return self._as_trained(self.aligned_stage.vectors)
        if self.sentence is not None and self.sentence.fits(self.student.hidden):
            return self._as_trained(self.sentence)
        pooled_stages = [stage for stage in self.own_stages if "pooled" in stage.student_streams]
        if not pooled_stages:
            return None
        return finished_pooling(None, pooled_stages[-1].vectors.pooling)

    def _as_trained(self, sentence: SentencePooling) -> SentencePooling:
        """Leave out the prompts of a teacher's files that the recipe's student did not read in training."""
        texts = [stage.corpus for stage in self.own_stages if isinstance(stage.corpus, CorpusSettings)]
        if not all(text.student_reads_prompts for text in texts):
            return sentence.without_prompts()
        prompts: set[str] = set()
        for text in texts:
            prompts.update(text.source_prompts)
        return sentence.with_prompts(prompts)

    def vectors(self) -> str | SentenceHead:
        """How sentence vectors of both models are made: as `pooling`, with what the teacher's folder has besides.

        Where its student learns finished vectors these are the teacher's alone, whatever the student's width.
        """
        sentence = self.sentence
        if sentence is None or self.recipe.evaluation.pooling != "auto":
            return self.pooling
        learns_finished_vectors = self.aligned_stage is not None and self.student_sentence is not None
        if learns_finished_vectors or sentence.fits(self.student.hidden):
            return SentenceHead(sentence)
        return self.pooling

    def vectors_of_both(self, student: Path) -> tuple[str | SentenceHead, str | SentenceHead]:
        """How the teacher and its saved student make sentence vectors: as their folders say, unless the recipe does.

        A teacher whose folder says nothing makes them as it taught them.

        Args:
            student: The folder of the student.

        Raises:
            ModelError: for modules whose weights are missing or damaged.
        """
        of_student = None
        if self.recipe.evaluation.pooling == "auto":
            of_student = sentence_pooling(student)
        if of_student is None:
            return self.vectors(), self.vectors()
        of_teacher = self.sentence or self.vector_stages[-1].teacher_vectors
        return SentenceHead(of_teacher), SentenceHead(of_student)


def plan_run(recipe: Recipe) -> RunPlan:
    """Check everything that can be checked without weights, and build the models of no size and run them.

    First the facts of the recipe alone (`limbeck.recipe.facts`), then those of its models: layers in range, heads that
    divide widths, teachers that have the head whose scores are taught, lengths within positions, terms that couple
    samples without accumulation, tokenizers that agree.

    Args:
        recipe: The recipe.

    Returns:
        What the run will do.

    Raises:
        LimbeckError: one line for the mistakes of the recipe alone, or for the first contradiction.
    """
    check_facts(recipe)
    return plan_checked(recipe)


def plan_checked(recipe: Recipe) -> RunPlan:
    """Plan a run as `plan_run`, without checking the facts of the recipe again.

    Args:
        recipe: A recipe that `load_checked` has loaded.

    Raises:
        LimbeckError: one line for the first contradiction.
    """
    teacher = plan_teacher(recipe.teacher)
    student = plan_student(recipe.student, teacher)
    stages: list[StagePlan] = []
    for index in range(len(recipe.stages)):
        stages.append(plan_stage(index, recipe, teacher, student, stages))
    stages = with_class_weights(with_class_names(stages), recipe)
    stages = [_with_absent_classes(index, stage) for index, stage in enumerate(stages)]

    head_stages = [stage for stage in stages if stage.student is None and stage.student_head]
    task_stages = [stage for stage in head_stages if stage.pairing.has_labels]
    if recipe.evaluation.tasks and not task_stages:
        raise RecipeError(
            "evaluation.tasks scores the student's head as it is, but no stage trains one for a task; leave it out "
            "(`limbeck evaluate` fine-tunes a student first), or give a stage a corpus with a task."
        )
    student = with_outputs(student, head_stages)
    for stage in stages:
        _check_models_run(stage, student)
    if teacher.sentence is not None:
        teacher.sentence.check_fits(recipe.teacher.model, teacher.shape.hidden)

    plan = RunPlan(recipe, teacher, student, stages)
    _check_scored_tasks(plan, task_stages)
    return plan


def _with_absent_classes(index: int, stage: StagePlan) -> StagePlan:
    """Read the first rows of labelled files: refuse rows that teach nothing, and note classes without any."""
    if not isinstance(stage.corpus, LabelledSettings):
        return stage
    place = f"stages.{index}.corpus" if stage.spec.corpus else "corpus"
    rows = check_rows(stage.corpus, place, classes=stage.learns_classes, queries=stage.compares_documents)
    if rows.alike is not None:
        raise stage.refuse_one_class(rows.alike)
    if rows.are_single:
        raise stage.refuse_single_documents()
    return replace(stage, absent=rows.absent)


def _check_models_run(stage: StagePlan, student: StudentPlan) -> None:
    """Build the models of a stage without weights and run them."""
    if stage.teacher.stage is None:
        check_runs(stage.teacher.title, stage.teacher.config, stage.teacher_head)
    learner = stage.student or student
    check_runs(f"the student {learner.shape}", learner.config, stage.student_head)


def _check_scored_tasks(plan: RunPlan, stages: Sequence[StagePlan]) -> None:
    """Refuse `evaluation.tasks` that a run could not score at its end, for want of rows or of a head that fits.

    Args:
        plan: The run.
        stages: Those that train the head of its student on labelled rows.
    """
    for name in plan.recipe.evaluation.tasks or ():
        with at_place("evaluation.tasks"):
            task = find_task(name).task
            if KINDS[task.kind].head is None:
                raise RecipeError(f"{task.title} compares sentence vectors, but here heads are scored; leave it out.")
            last = stages[-1]
            saved_config = type(plan.student_config)(**plan.student_config.to_dict())
            saved_config.architectures = [model_class(saved_config, last.student_head).__name__]
            match_head("the student", saved_config, task, way_out=SCORE_LATER)
            if last.teacher_head is not None and last.teacher.stage is None:
                match_head(last.teacher.title, last.teacher.config, task, way_out=SCORE_LATER)
            check_scored(name, data=plan.tasks_folder)
