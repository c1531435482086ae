"""Sentence vectors of a stage: how its two models make them, and whether prompts are put before texts.

A *pooled* vector is the pooling (mean, CLS ...) of a model's last hidden states; a *finished* vector has also gone
through the modules behind the pooling, such as a dense layer. Terms read them as the streams `pooled` and `vector`.
A *prompt* is text such as "query: " that the files of a sentence-embedding model put before each of its inputs.
An *assistant* is a teacher that an earlier stage of the same run makes: it has no files while the run is planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from limbeck.core.fields import NONE
from limbeck.corpus.settings import CorpusSpec
from limbeck.errors import RecipeError
from limbeck.methods.pairing import Pairing
from limbeck.methods.term import Term
from limbeck.models.sentence_reader import check_pooling_named
from limbeck.models.sentences import SentencePooling, finished_pooling
from limbeck.models.streams import OF_SENTENCES
from limbeck.recipe.model_plans import TeacherInfo
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.stage_terms import compares_tokens, kept_map_of, streams_read
from limbeck.recipe.stages import StageSpec


def stage_vectors(
    stage: StageSpec,
    terms: Sequence[Term],
    pairing: Pairing,
    teacher: TeacherInfo,
    assistant: StagePlan | None,
    place: str,
) -> tuple[SentencePooling, SentencePooling]:
    """How a stage's student and its teacher make sentence vectors, in this order.

    Both follow the teacher's files. Without such files, they use the pooling that the method's options name, or the
    mean.

    Args:
        stage: The stage.
        terms: Its terms.
        pairing: The shapes of its two models, and how its teacher makes sentence vectors.
        teacher: Its teacher.
        assistant: The earlier stage whose student teaches here, if one does.
        place: The place of the stage in the recipe, for messages.

    Raises:
        LimbeckError: for vectors that the student cannot make, or a pooling other than the teacher's.
    """
    pooling_option = stage.method.get("pooling")
    teacher_vectors = pairing.sentence
    streams = streams_read(terms)
    reads_finished = "vector" in streams
    reads_pooled = "pooled" in streams

    # Vectors of a teacher of which only the outputs are known are made already, so there is nothing to check.
    if teacher.is_known_model and teacher_vectors is not None and (reads_finished or reads_pooled):
        teacher_vectors.check_whole(teacher.spec.model, teacher.shape.hidden)
    if teacher.is_known_model and teacher_vectors is None and assistant is None:
        # The files of this model do not say how it makes vectors. The pooling may be named by the method's options
        # instead, but the modules of finished vectors may not.
        needs_files = reads_finished or (reads_pooled and pooling_option is None)
        if needs_files:
            check_pooling_named(teacher.spec.model)

    if reads_finished:
        _check_finished_in_time(teacher, assistant, place)
        student_vectors = finished_pooling(teacher_vectors, pooling_option)
        # A learned map of the student takes the place of the teacher's modules behind the pooling.
        if kept_map_of(terms) is not None:
            student_vectors = replace(student_vectors, modules=())
        return student_vectors, finished_pooling(teacher_vectors)

    # Both models make pooled vectors in the same way.
    if reads_pooled and teacher_vectors is not None:
        _check_pooled_alike(teacher_vectors, pooling_option, pairing, teacher, place)
        return teacher_vectors, teacher_vectors
    vectors = finished_pooling(described=None, pooling=pooling_option)
    return vectors, vectors


def _check_finished_in_time(teacher: TeacherInfo, assistant: StagePlan | None, place: str) -> None:
    """Refuse an assistant whose finished vectors are made by a map that is itself still learned in this run.

    Args:
        teacher: The teacher.
        assistant: The earlier stage whose student teaches here, if one does.
        place: The place of the stage in the recipe, for messages.

    Raises:
        RecipeError: for such an assistant.
    """
    if assistant is not None and assistant.kept_map is not None:
        raise RecipeError(
            f"{place}.teacher: {teacher.title} makes its vectors by a learned map, which is finished only when "
            "that stage ends, so its vectors cannot be learned in the same recipe; leave the stage's teacher "
            "out, or make two recipes."
        )


def _check_pooled_alike(
    teacher_vectors: SentencePooling, pooling_option: str | None, pairing: Pairing, teacher: TeacherInfo, place: str
) -> None:
    """Refuse a student that cannot make its pooled vectors as its teacher does, or that is told not to.

    Args:
        teacher_vectors: How the teacher makes its vectors.
        pooling_option: The pooling that the method's options name, if they do.
        pairing: The shapes of the two models.
        teacher: The teacher.
        place: The place of the stage in the recipe, for messages.

    Raises:
        RecipeError: for another pooling, and for modules that need another width.
    """
    if pooling_option not in (None, teacher_vectors.pooling):
        raise RecipeError(
            f"{place}.method.pooling is '{pooling_option}', but the vectors of '{teacher.title}' are made by "
            f"'{teacher_vectors.pooling}'; leave method.pooling out."
        )
    if not teacher_vectors.fits(pairing.student.hidden):
        raise RecipeError(
            f"{place}: '{teacher.title}' makes its vectors by {teacher_vectors}, which cannot follow a student of "
            f"width {pairing.student.hidden}; give a student as wide as the teacher, or use the method "
            "aligned_embedding."
        )


def reads_prompts(
    corpus: CorpusSpec, stage: StageSpec, terms: Sequence[Term], teacher: TeacherInfo, place: str
) -> bool:
    """Whether texts of a stage get the prompts that the files of its teacher name, such as "query: ".

    Prompts belong to sentence vectors, so only a stage whose terms read sentence vectors has them.

    Args:
        corpus: The text of the stage. A source in it may have a role, which chooses one of the prompts.
        stage: The stage.
        terms: Its terms.
        teacher: Its teacher.
        place: The place of the stage in the recipe, for messages.

    Raises:
        RecipeError: for a source with a role in a stage without prompts, and for a student that reads no prompts where
            a term compares its tokens with the teacher's.
    """
    reads_sentence_vectors = bool(streams_read(terms) & set(OF_SENTENCES))
    # The student of an earlier stage has no files yet, which could name prompts.
    teacher_has_files = teacher.stage is None
    if not reads_sentence_vectors or not teacher_has_files:
        _check_no_role(corpus, stage, teacher, place)
        return False

    # With `student_prompts: none` only the teacher reads the prompt. Its sequences are then longer than the student's,
    # so that their tokens cannot be compared one by one.
    student_prompts = stage.text.student_prompts or corpus.student_prompts
    token_terms = [term.name for term in terms if compares_tokens(term)]
    if student_prompts == NONE and token_terms:
        raise RecipeError(
            f"{place}: with student_prompts: none the teacher reads tokens that the student does not, but the term "
            f"'{token_terms[0]}' compares tokens; leave student_prompts out, or give that term the weight 0."
        )
    return True


def _check_no_role(corpus: CorpusSpec, stage: StageSpec, teacher: TeacherInfo, place: str) -> None:
    """Refuse a source with a role (query or document) in a stage without prompts: a role only chooses a prompt."""
    roles = [source.role for source in corpus.described_sources if source.role is not None]
    if not roles:
        return
    is_earlier_student = teacher.stage is not None
    if is_earlier_student:
        reason = f"{teacher.title} has no files that define it"
    else:
        reason = f"{stage.method['name']} reads none"
    raise RecipeError(
        f"{place}: the role '{roles[0]}' of a source puts a prompt for sentence vectors before its texts, but "
        f"{reason}; leave out 'role', or use a method on sentence vectors and a teacher from a folder."
    )
