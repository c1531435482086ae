"""Planning a stage: its teacher, its student, its terms and its text, checked against each other.

A *term* is one weighted loss between two models, such as the error of the hidden states of a layer. A *pairing* holds
what a method needs to know of the two models to choose its terms. An *assistant* is the student of an earlier stage
that teaches in this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from limbeck.core.kinds import KINDS
from limbeck.corpus.settings import CorpusSettings, CorpusSpec, LabelledSettings
from limbeck.errors import CorpusError, RecipeError
from limbeck.methods.pairing import TEXT, Pairing
from limbeck.methods.term import Term
from limbeck.models.cross_encoders import check_no_prompt
from limbeck.models.heads import Head, check_family, check_has_head, head_of
from limbeck.recipe.corpora import corpus_settings
from limbeck.recipe.mistakes import at_place
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo, plan_student, plan_teacher
from limbeck.recipe.row_copies import augmentation
from limbeck.recipe.schema import Recipe
from limbeck.recipe.several_teachers import check_combined, check_combined_text, with_layers_of
from limbeck.recipe.shared_reading import plan_shared_reading
from limbeck.recipe.stage_checks import (
    check_stage_training,
    check_steps,
    check_student_length,
    check_terms_apart,
    check_text_apart,
    check_text_fits,
    check_text_level,
    check_text_unchanged,
    masked_share,
)
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.stage_terms import compose_terms, needed_head
from limbeck.recipe.stage_vectors import reads_prompts, stage_vectors
from limbeck.recipe.stages import StageSpec
from limbeck.recipe.student_head import with_outputs
from limbeck.recipe.tokenizer_plans import TokenizerPlan, reading_difference


def plan_stage(
    index: int, recipe: Recipe, teacher: TeacherInfo, student: StudentPlan, earlier: Sequence[StagePlan]
) -> StagePlan:
    """Check a stage and resolve its options for the two models.

    Args:
        index: The position of the stage in the recipe, from 0.
        recipe: The recipe, whose facts are checked already (`limbeck.recipe.facts`).
        teacher: The recipe's teacher, which teaches where the stage names no other.
        student: The recipe's student, which is trained where the stage has no student of its own.
        earlier: The plans of the stages before it, whose students may teach here.

    Raises:
        LimbeckError: one line for the first contradiction, with its place in the recipe.
    """
    stage = recipe.stages[index]
    place = f"stages.{index}"
    corpus = stage.corpus or recipe.corpus
    assert corpus is not None  # A recipe with stages has text, as its schema checks.
    task = TEXT
    labelled = True
    if corpus.task is not None:
        task = corpus.task.kind
        labelled = corpus.task.labelled

    # The two models of the stage.
    assistant = _assistant_of(stage, earlier)
    stage_teacher = _plan_stage_teacher(stage, teacher, assistant)
    own_student = None
    if stage.student is not None:
        with at_place(f"{place}.student"):
            own_student = plan_student(stage.student, stage_teacher)
    # The student that this stage trains.
    learner = own_student or student

    # The terms between them, and the heads that these read.
    pairing = Pairing(learner.shape, stage_teacher.facts, task, sentence=stage_teacher.sentence, labelled=labelled)
    terms = compose_terms(stage, pairing, place)
    check_combined(terms, pairing, stage_teacher, place)
    student_head = needed_head(terms, pairing, "student")
    teacher_head = needed_head(terms, pairing, "teacher")
    with at_place(place):
        check_family(learner.config, student_head)
        _check_teacher_heads(teacher_head, stage_teacher, assistant)

    # Its training, and the settings of its text.
    check_stage_training(stage, place, recipe.seed, terms, evaluates=corpus.held_out != 0)
    check_steps(stage, place, corpus)
    settings = _plan_text(stage, place, corpus, terms, stage_teacher, reads_scores=teacher_head is not None)
    settings = _with_copies(settings, corpus, stage_teacher, recipe.seed)
    check_combined_text(settings, stage_teacher, place)
    settings = _with_keys(settings, stage, place, terms, pairing, stage_teacher)

    # The tokens that its two models read, and their sentence vectors.
    reading = _plan_reading(stage, place, settings, terms, pairing, learner, stage_teacher)
    check_text_fits(stage, place, reading.settings, stage_teacher, learner)
    vectors, teacher_vectors = stage_vectors(stage, terms, pairing, stage_teacher, assistant, place)

    plan = StagePlan(
        spec=stage,
        terms=terms,
        corpus=reading.settings,
        vectors=vectors,
        teacher_vectors=teacher_vectors,
        pairing=pairing,
        teacher=stage_teacher,
        student=own_student,
        tokenizer=learner.tokenizer,
        teacher_tokenizer=reading.teacher_tokenizer,
        student_head=student_head,
        teacher_head=teacher_head,
        mask_tokens=masked_share(stage, terms, pairing, place),
        whole_tokenizer=reading.whole_tokenizer,
    )
    return _with_own_outputs(plan)


def _check_teacher_heads(head: Head | None, teacher: TeacherInfo, assistant: StagePlan | None) -> None:
    """Refuse teachers without the head whose scores the terms read.

    Args:
        head: The head; None where the terms read no scores.
        teacher: The teacher, or several.
        assistant: The earlier stage whose student teaches, or None.
    """
    if head is None:
        return
    for member in teacher.members:
        # A teaching in place of the model gives scores without a head.
        if member.teaching is None:
            _check_teacher_head(head, member, assistant)


def _with_keys(
    settings: CorpusSettings | LabelledSettings,
    stage: StageSpec,
    place: str,
    terms: Sequence[Term],
    pairing: Pairing,
    teacher: TeacherInfo,
) -> CorpusSettings | LabelledSettings:
    """Add the keys of texts for a teacher with stored outputs, which are found by the text of a row.

    Args:
        settings: The settings of the stage's text.
        stage: The stage.
        place: Where it stands in the recipe.
        terms: Its terms.
        pairing: Its models, and the task of its corpus.
        teacher: Its teacher.

    Returns:
        The settings with keys; as they are for a teacher that reads tokens.

    Raises:
        RecipeError: for terms that stored outputs do not have, and for text that is changed.
    """
    has_stored_outputs = teacher.facts.reads == "rows"
    if not has_stored_outputs:
        return settings
    # Of several teachers, one may be a model whose layers are read: `check_combined` has checked their terms.
    if teacher.combination is None:
        check_text_level(terms, pairing, place)
    check_text_unchanged(stage, place, settings, teacher.facts.title)
    # Without the teacher's tokenizer, its outputs are of texts as they are, not cut to a length.
    has_outputs_alone = any(member.tokenizer is None for member in teacher.members)
    return settings.model_copy(update={"text_keys": True, "whole_texts": has_outputs_alone})


def _with_own_outputs(plan: StagePlan) -> StagePlan:
    """Give the student of a stage alone the classes of its rows, where it learns labels alone.

    Its configuration was derived from its teacher's, which also gives it the teacher's outputs. They are right where it
    learns the teacher's scores.

    Raises:
        RecipeError: see `with_outputs`.
    """
    learns_labels_alone = plan.student_head is not None and plan.teacher_head is None
    if plan.student is None or not learns_labels_alone:
        return plan
    return replace(plan, student=with_outputs(plan.student, [plan]))


def _assistant_of(stage: StageSpec, earlier: Sequence[StagePlan]) -> StagePlan | None:
    """The earlier stage whose student teaches in a stage; None for other teachers."""
    if stage.teacher is None or stage.teacher.stage is None:
        return None
    plan_by_title = {plan.spec.title: plan for plan in earlier}
    return plan_by_title[stage.teacher.stage]


def _plan_stage_teacher(stage: StageSpec, teacher: TeacherInfo, assistant: StagePlan | None) -> TeacherInfo:
    """The stage's teacher: its own, an earlier stage's student, or the recipe's.

    Args:
        stage: The stage.
        teacher: The recipe's teacher.
        assistant: The earlier stage whose student teaches, or None.

    Raises:
        LimbeckError: for a model that cannot be read.
    """
    if stage.teacher is None:
        # Of several teachers of the recipe, a stage may name the one whose layers it reads.
        return with_layers_of(teacher, stage.layers_from)
    if assistant is None:
        return plan_teacher(stage.teacher)

    assert assistant.student is not None  # The recipe's schema lets only stages with a student of their own teach.
    sentence = None
    if assistant.teaches_vectors:
        # The folder of this student will not name any prompts, so that texts get none when it teaches.
        sentence = assistant.vectors.without_prompts()
    return TeacherInfo(
        spec=stage.teacher,
        known_config=assistant.student.config,
        tokenizer=assistant.student.tokenizer,
        sentence=sentence,
        stage=stage.teacher.stage,
    )


class _Reading(NamedTuple):
    """How the two models of a stage read its text.

    Attributes:
        settings: The settings of the text.
        teacher_tokenizer: The tokenizer of a teacher that reads other tokens than the student; None for any other.
        whole_tokenizer: The tokenizer of a teacher that reads the pieces of the student's cut one; None for any other.
    """

    settings: CorpusSettings | LabelledSettings
    teacher_tokenizer: TokenizerPlan | None
    whole_tokenizer: TokenizerPlan | None


def _plan_reading(
    stage: StageSpec,
    place: str,
    settings: CorpusSettings | LabelledSettings,
    terms: Sequence[Term],
    pairing: Pairing,
    student: StudentPlan,
    teacher: TeacherInfo,
) -> _Reading:
    """Plan how the two models of a stage read its text: by the same tokens, or each by its own.

    Args:
        stage: The stage.
        place: Where it stands in the recipe.
        settings: The settings of its text.
        terms: Its terms.
        pairing: Its models, and the task of its corpus.
        student: Its student.
        teacher: Its teacher.

    Returns:
        The settings of the text, and the tokenizer of a teacher that reads other tokens than its student.

    Raises:
        RecipeError: for terms and text that models with different tokens cannot have.
    """
    reads_translations = isinstance(settings, CorpusSettings) and settings.teaches_translations
    if reads_translations:
        check_terms_apart(terms, pairing, place, "The teacher reads sentences that the student's translate")
    whole_tokenizer = plan_shared_reading(terms, pairing, settings, student, teacher, place)
    teacher_tokenizer = None
    if whole_tokenizer is None:
        teacher_tokenizer = _teacher_tokenizer(stage, place, terms, pairing, student, teacher)
    if teacher_tokenizer is None and reads_translations:
        # Each model gets texts of its own, whatever their tokens are. A teacher whose outputs alone are known has no
        # tokenizer: its outputs are found by the texts that it read.
        teacher_tokenizer = teacher.tokenizer

    reads_apart = teacher_tokenizer is not None
    check_student_length(settings, place, reads_apart=reads_apart)
    if reads_apart:
        check_text_apart(stage, place, settings)
        settings = _with_student_length(settings, student)
    return _Reading(settings, teacher_tokenizer, whole_tokenizer)


def _teacher_tokenizer(
    stage: StageSpec,
    place: str,
    terms: Sequence[Term],
    pairing: Pairing,
    student: StudentPlan,
    teacher: TeacherInfo,
) -> TokenizerPlan | None:
    """The tokenizer of a stage's teacher, where it reads other tokens than the student; None for any other teacher.

    Args:
        stage: The stage.
        place: Where it stands in the recipe.
        terms: Its terms.
        pairing: Its models, and the task of its corpus.
        student: Its student.
        teacher: Its teacher.

    Raises:
        RecipeError: for terms that compare tokens of models that read different ones.
    """
    reads_teacher = any(term.teacher for term in terms)
    if teacher.tokenizer is None or not reads_teacher:
        return None
    difference = reading_difference(student.tokenizer, teacher.tokenizer)
    if not difference:
        return None
    check_terms_apart(terms, pairing, place, difference)
    return teacher.tokenizer


def _with_student_length(
    settings: CorpusSettings | LabelledSettings, student: StudentPlan
) -> CorpusSettings | LabelledSettings:
    """Add the longest row of a student that reads other tokens than its teacher, where the recipe does not say it."""
    if settings.student_length is not None:
        return settings
    # Both read the same text, which may have more tokens of a smaller vocabulary. Few texts have twice as many.
    length = 2 * settings.length
    if student.shape.positions is not None:
        length = min(length, student.shape.positions)
    return settings.model_copy(update={"student_length": length})


def _check_teacher_head(head: Head, teacher: TeacherInfo, assistant: StagePlan | None) -> None:
    """Refuse a teacher without the head whose scores the terms read.

    Args:
        head: The head.
        teacher: The teacher.
        assistant: The earlier stage whose student is this teacher; None for a model with files.
    """
    if assistant is None:
        saved_head = head_of(teacher.config)
        if head == "masked_lm" and saved_head in KINDS:
            kind_in_words = str(saved_head).replace("_", " ")
            raise RecipeError(
                f"the teacher '{teacher.title}' has no masked language model head, but does {kind_in_words}: give "
                f"corpus.task (for text without labels, {{kind: {saved_head}, labelled: false}}), or use a method "
                "on hidden states or relations."
            )
        # The configuration of a model with files says which head it was saved with.
        check_has_head(teacher.title, teacher.config, head)
        check_no_prompt(teacher.spec.model, teacher.spec.revision)
        return
    if assistant.student_head != head:
        raise RecipeError(
            f"{teacher.title} has no {head} head, because its stage trains none; give that stage a method that "
            "trains this head, or choose another teacher."
        )


def _plan_text(
    stage: StageSpec,
    place: str,
    corpus: CorpusSpec,
    terms: Sequence[Term],
    teacher: TeacherInfo,
    *,
    reads_scores: bool,
) -> CorpusSettings | LabelledSettings:
    """The text of a stage, with the prompts of its teacher where sentence vectors are compared.

    The settings are `LabelledSettings` where the corpus has a task, else `CorpusSettings`.
    """
    # The teacher's sentence settings are given for their prompts, where the stage reads prompts.
    source_of_prompts = None
    if reads_prompts(corpus, stage, terms, teacher, place):
        source_of_prompts = teacher.sentence
    try:
        return corpus_settings(corpus, stage.text, teacher, reads_scores=reads_scores, sentence=source_of_prompts)
    except CorpusError as error:
        # A stage without a corpus of its own reads the recipe's, which stages share. An error in it names no stage.
        if stage.corpus is None:
            raise
        raise CorpusError(f"{place}.corpus: {error}") from None


def _with_copies(
    settings: CorpusSettings | LabelledSettings, corpus: CorpusSpec, teacher: TeacherInfo, seed: int
) -> CorpusSettings | LabelledSettings:
    """Add the copies of labelled rows that the corpus asks for."""
    if corpus.augment is None or not isinstance(settings, LabelledSettings):
        return settings
    # Copies may be made with the teacher itself, unless it is the student of an earlier stage: that does not exist
    # before the run.
    teacher_model = None
    if teacher.stage is None:
        teacher_model = (teacher.spec.model, teacher.spec.revision)
    copies = augmentation(corpus.augment, teacher.title, teacher_model, seed)
    return settings.model_copy(update={"augment": copies})
