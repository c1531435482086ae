"""`RunPlan`, a recipe checked against the configurations of its models, before any weight is loaded.

A stage trains the recipe's student further, or makes a student of its own, such as a teacher assistant. Its plan then
has this student; `stage.student` is None where it trains the recipe's. A sentence vector is *pooled* (as the pooling
gives it) or *finished* (behind the modules that follow the pooling). What a recipe's student saves about its vectors is
decided by the stages that taught it vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedConfig

from limbeck.corpus.settings import CorpusSettings, StageTextSpec
from limbeck.models.blueprint import StudentBlueprint
from limbeck.models.families import Shape
from limbeck.models.heads import Head
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling, finished_pooling
from limbeck.recipe.corpora import corpus_settings
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo
from limbeck.recipe.models import TeacherSpec
from limbeck.recipe.plan_summary import summarise_plan
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_plan import StagePlan

_VECTOR_STREAMS = {"pooled", "vector"}
"""Streams of sentence vectors: as the pooling gives them, and finished by the modules behind it."""


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
        """The plan in a few lines of text, each by its title."""
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
        for stage in self.own_stages:
            if stage.student_head is not None:
                return stage.student_head
        return None

    @property
    def tasks_folder(self) -> Path | None:
        """The folder with the files of `evaluation.tasks`; None for the Hub.

        It is `evaluation.data`, or else the `data` of the last stage whose corpus has one.
        """
        if self.recipe.evaluation.data is not None:
            return Path(self.recipe.evaluation.data).expanduser()
        for stage in reversed(self.stages):
            corpus = stage.spec.corpus or self.recipe.corpus
            if corpus is not None and corpus.data is not None:
                return Path(corpus.data).expanduser()
        return None

    @property
    def text_alone(self) -> CorpusSettings | None:
        """The recipe's text where there are no stages; None otherwise.

        A run without stages only makes a student. It is compared with its teacher on text that is held out of this one.
        """
        corpus = self.recipe.corpus
        has_text = corpus is not None and corpus.task is None
        if self.stages or not has_text:
            return None
        assert corpus is not None
        settings = corpus_settings(corpus, StageTextSpec(), self.teacher_info)
        assert isinstance(settings, CorpusSettings)
        return settings

    @property
    def aligned_stage(self) -> StagePlan | None:
        """The last stage that teaches the recipe's student finished vectors: it decides how the student makes them."""
        stages = [stage for stage in self.own_stages if stage.teaches_vectors]
        return stages[-1] if stages else None

    @property
    def vector_stages(self) -> list[StagePlan]:
        """The stages that teach the recipe's student sentence vectors, pooled or finished."""
        return [stage for stage in self.own_stages if stage.student_streams & _VECTOR_STREAMS]

    @property
    def vector_teachers(self) -> dict[str, TeacherSpec]:
        """The models whose sentence vectors a stage teaches, by title.

        Students of stages are not among them, and neither are models whose outputs are stored.
        """
        teachers = {}
        for stage in self.stages:
            is_earlier_student = stage.teacher.stage is not None
            if is_earlier_student or not stage.teacher_streams & _VECTOR_STREAMS:
                continue
            for member in stage.teacher.members:
                if member.has_weights:
                    teachers[member.title] = member.spec
        return teachers

    @property
    def trained_widths(self) -> list[int]:
        """The widths to which vectors may be cut, as the student's vector stages trained them, the widest first."""
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
        if self.sentence is not None:
            return self.sentence.pooling
        return "mean"

    @property
    def student_sentence(self) -> SentencePooling | None:
        """How the recipe's student makes sentence vectors, without a map that it keeps; None where it makes none.

        They are made as a stage trained the student to make them, or else as the teacher makes them.
        """
        # A student with the head of a task makes none, even if the files of its teacher say how vectors are made: these
        # are from the model that the teacher was fine-tuned from.
        if self.head not in (None, "masked_lm"):
            return None

        # A stage that taught finished vectors decides, else the teacher, if its modules fit the student's width.
        if self.aligned_stage is not None:
            return self._as_trained(self.aligned_stage.vectors)
        if self.sentence is not None and self.sentence.fits(self.student.hidden):
            return self._as_trained(self.sentence)

        # The teacher's files do not name a pooling: the last stage that compared pooled vectors decides.
        pooled_stages = [stage for stage in self.own_stages if "pooled" in stage.student_streams]
        if not pooled_stages:
            return None
        return finished_pooling(None, pooled_stages[-1].vectors.pooling)

    def _as_trained(self, sentence: SentencePooling) -> SentencePooling:
        """Leave out the prompts of a teacher's files that the recipe's student did not read in training."""
        prompts: set[str] = set()
        for stage in self.own_stages:
            # Labelled rows get no prompts.
            if not isinstance(stage.corpus, CorpusSettings):
                continue
            if not stage.corpus.student_reads_prompts:
                return sentence.without_prompts()
            prompts.update(stage.corpus.source_prompts)
        return sentence.with_prompts(prompts)

    def vectors(self) -> str | SentenceHead:
        """How the run's evaluation makes sentence vectors of both models, where the student's folder does not say.

        Returns:
            The teacher's modules, or the name of a pooling: where the recipe names one, the teacher's files name no
            modules, or these do not fit the student's width. A student that learned finished vectors through a map of
            its own may have another width.
        """
        sentence = self.sentence
        if sentence is None or self.recipe.evaluation.pooling != "auto":
            return self.pooling
        learns_finished_vectors = self.aligned_stage is not None and self.student_sentence is not None
        if learns_finished_vectors or sentence.fits(self.student.hidden):
            return SentenceHead(sentence)
        return self.pooling

    def vectors_of_both(self, student: Path) -> tuple[str | SentenceHead, str | SentenceHead]:
        """How the run's evaluation makes sentence vectors of the teacher and of its saved student, in this order.

        A pooling that the recipe names holds for both models. Otherwise their folders decide. A teacher whose folder
        does not say makes them as it did while it taught them.

        Args:
            student: The folder of the student.

        Raises:
            ModelError: for modules whose weights are missing or damaged.
        """
        student_pooling = None
        if self.recipe.evaluation.pooling == "auto":
            student_pooling = sentence_pooling(student)
        if student_pooling is None:
            return self.vectors(), self.vectors()
        teacher_pooling = self.sentence or self.vector_stages[-1].teacher_vectors
        return SentenceHead(teacher_pooling), SentenceHead(student_pooling)
