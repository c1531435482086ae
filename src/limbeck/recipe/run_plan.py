"""`RunPlan`, a recipe checked against the configurations of its models, before any weight is loaded.

A stage trains the recipe's student further, or makes a student of its own, such as a teacher assistant. Its plan then
has this student; `stage.student` is None where it trains the recipe's. A sentence vector is *pooled* (as the pooling
gives it) or *finished* (behind the modules that follow the pooling). `SentencePooling` describes how one model makes
its vectors: the pooling, the modules and the prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from limbeck.recipe.start_rows import StartRows

_VECTOR_STREAMS = {"pooled", "vector"}
"""Streams of sentence vectors: as the pooling gives them, and finished by the modules behind it."""


@dataclass(frozen=True, repr=False)
class RunPlan:
    """A recipe that has been checked against its models' configurations.

    How sentence vectors are made is asked at three times:

    - By the files of the teacher, before the run: `sentence`.
    - For the files of the student, as it is saved: `student_sentence`.
    - For the evaluation, which compares the vectors of both models: `vectors_of_both` where the student is saved, and
      `vectors` where it has no folder yet, or one that says nothing.

    Args:
        recipe: The recipe.
        teacher_info: The recipe's teacher.
        student_plan: The recipe's student.
        stages: The stages in the order of training; none where a run only makes a student.
        start_rows: The labelled rows of a run without stages.
    """

    recipe: Recipe
    teacher_info: TeacherInfo
    student_plan: StudentPlan
    stages: list[StagePlan]
    start_rows: StartRows = field(default_factory=StartRows)

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
        """How the recipe's teacher makes sentence vectors, as its files say; None where they say nothing."""
        return self.teacher_info.sentence

    @property
    def own_stages(self) -> list[StagePlan]:
        """The stages that train the recipe's student."""
        return [stage for stage in self.stages if stage.student is None]

    @property
    def head(self) -> Head | None:
        """The head that the recipe's student is made with; None where no stage needs one."""
        if self.start_rows.stage is not None:
            return self.start_rows.stage.student_head
        # All stages that need a head need the same one, or the recipe is refused as it is planned.
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
        # No stage has options of its own for the text.
        settings = corpus_settings(corpus, StageTextSpec(), self.teacher_info)
        assert isinstance(settings, CorpusSettings)
        return settings

    @property
    def aligned_stage(self) -> StagePlan | None:
        """The last stage that teaches the recipe's student finished vectors; None where none does.

        It decides how the saved student makes its vectors.
        """
        for stage in reversed(self.own_stages):
            if stage.teaches_vectors:
                return stage
        return None

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
        """The name of the evaluation's pooling: as `evaluation.pooling` or the teacher's files say, else the mean."""
        pooling = self.recipe.evaluation.pooling
        if pooling != "auto":
            return pooling
        if self.sentence is not None:
            return self.sentence.pooling
        return "mean"

    @property
    def student_sentence(self) -> SentencePooling | None:
        """How the recipe's student makes sentence vectors, as its files will say; None where it makes none.

        A learned map that the student keeps is not part of it, since its weights are known only after the training.
        """
        # A student with the head of a task makes none, even if the files of its teacher say how vectors are made: these
        # are from the model that the teacher was fine-tuned from.
        if self.head not in (None, "masked_lm"):
            return None

        # A stage that taught finished vectors decides, else the teacher, if its modules fit the student's width.
        if self.aligned_stage is not None:
            return self._with_trained_prompts(self.aligned_stage.vectors)
        if self.sentence is not None and self.sentence.fits(self.student.hidden):
            return self._with_trained_prompts(self.sentence)

        # Nothing is known of the teacher's vectors, or its modules do not fit: the last stage that compared pooled
        # vectors decides by its pooling alone.
        pooled_stages = [stage for stage in self.own_stages if "pooled" in stage.student_streams]
        if not pooled_stages:
            return None
        return finished_pooling(described=None, pooling=pooled_stages[-1].vectors.pooling)

    def _with_trained_prompts(self, sentence: SentencePooling) -> SentencePooling:
        """Leave out the prompts of a teacher's files that the recipe's student did not read in training."""
        prompts: set[str] = set()
        for stage in self.own_stages:
            # Labelled rows get no prompts.
            if not isinstance(stage.corpus, CorpusSettings):
                continue
            # After a stage that read its texts without prompts, a prompt would only lead the student astray.
            if not stage.corpus.student_reads_prompts:
                return sentence.without_prompts()
            prompts.update(stage.corpus.source_prompts)
        return sentence.with_prompts(prompts)

    def vectors(self) -> str | SentenceHead:
        """How the evaluation makes the teacher's sentence vectors, and those of a student without a folder that says.

        Returns:
            The teacher's pooling with its modules; or only the name of a pooling, where the recipe names one, the
            teacher's files say nothing, or the student could not follow the teacher's modules.
        """
        is_pooling_named = self.recipe.evaluation.pooling != "auto"
        if is_pooling_named or self.sentence is None:
            return self.pooling
        # A student that learned finished vectors makes them in its own way, perhaps through a learned map. Then the
        # teacher's modules need not fit the student's width.
        has_own_way = self.aligned_stage is not None and self.student_sentence is not None
        if has_own_way or self.sentence.fits(self.student.hidden):
            return SentenceHead(self.sentence)
        return self.pooling

    def vectors_of_both(self, student: Path) -> tuple[str | SentenceHead, str | SentenceHead]:
        """How the evaluation makes sentence vectors of the teacher and of its saved student, in this order.

        A pooling that the recipe names holds for both models. Otherwise their folders decide. A teacher whose folder
        says nothing makes them as it did while it taught them.

        Args:
            student: The folder of the student, as this run has saved it.

        Raises:
            ModelError: for modules whose weights are missing or damaged.
        """
        saved_sentence: SentencePooling | None = None
        if self.recipe.evaluation.pooling == "auto":
            saved_sentence = sentence_pooling(student)
        if saved_sentence is None:
            vectors = self.vectors()
            return vectors, vectors

        teacher_sentence = self.sentence
        if teacher_sentence is None:
            # The teacher's files say nothing, so the student's can say something only if a stage taught it vectors
            # (see `student_sentence`). There is such a stage, and the last one decides.
            teacher_sentence = self.vector_stages[-1].teacher_vectors
        return SentenceHead(teacher_sentence), SentenceHead(saved_sentence)
