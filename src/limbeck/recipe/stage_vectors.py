"""Sentence vectors of a stage: how its two models make them, and whether prompts are put before texts."""

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

    They make them as the teacher's files say; without files by the pooling that the method's options name, or the mean.

    Args:
        stage: The stage.
        terms: Its terms.
        pairing: Its models.
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

    # Vectors of a teacher whose files cannot be relied on are refused.
    if teacher_vectors is None and assistant is None:
        needs_files = reads_finished or (reads_pooled and pooling_option is None)
        if needs_files:
            check_pooling_named(teacher.spec.model)
    if teacher_vectors is not None and (reads_finished or reads_pooled):
        teacher_vectors.check_whole(teacher.spec.model, teacher.shape.hidden)

    # Finished vectors: those of the student end as the teacher's, or with a learned map in place of its modules.
    if reads_finished:
        if assistant is not None and assistant.kept_map is not None:
            raise RecipeError(
                f"{place}.teacher: {teacher.title} makes its vectors by a learned map, which is finished only at "
                "the end of that stage; let the recipe's teacher teach, or make two recipes."
            )
        student_vectors = finished_pooling(teacher_vectors, pooling_option)
        if kept_map_of(terms) is not None:
            student_vectors = replace(student_vectors, modules=())
        return student_vectors, finished_pooling(teacher_vectors)

    # Pooled vectors, or none: the same of both models.
    if teacher_vectors is None or not reads_pooled:
        pooling = finished_pooling(None, pooling_option)
        return pooling, pooling
    if pooling_option not in (None, teacher_vectors.pooling):
        raise RecipeError(
            f"{place}.method.pooling is '{pooling_option}', but the vectors of '{teacher.title}' are made by "
            f"'{teacher_vectors.pooling}'; leave it out."
        )
    if not teacher_vectors.fits(pairing.student.hidden):
        raise RecipeError(
            f"{place}: '{teacher.title}' makes its vectors by {teacher_vectors}, which cannot follow a student of "
            f"width {pairing.student.hidden}; give a student as wide as the teacher, or use the method "
            "aligned_embedding."
        )
    return teacher_vectors, teacher_vectors


def reads_prompts(
    corpus: CorpusSpec, stage: StageSpec, terms: Sequence[Term], teacher: TeacherInfo, place: str
) -> bool:
    """Whether a stage's terms read sentence vectors, whose prompts a teacher's files may give.

    Raises:
        RecipeError: for roles that nothing reads, and prompts that part the tokens of student and teacher where terms
            compare them.
    """
    reads_vectors = bool(streams_read(terms) & set(OF_SENTENCES))
    if not reads_vectors or teacher.stage is not None:
        _check_no_role(corpus, stage, teacher, place)
        return False

    # Without its prompts a student reads other tokens than its teacher, so tokens cannot be compared one by one.
    student_prompts = stage.text.student_prompts or corpus.student_prompts
    token_terms = [term.name for term in terms if compares_tokens(term)]
    if student_prompts == NONE and token_terms:
        raise RecipeError(
            f"{place}: student_prompts is none, so the teacher reads tokens that the student does not, but the "
            f"term '{token_terms[0]}' compares tokens; leave student_prompts out, or give that term the weight 0."
        )
    return True


def _check_no_role(corpus: CorpusSpec, stage: StageSpec, teacher: TeacherInfo, place: str) -> None:
    """Refuse the role of a source (a query or a document), which only chooses a prompt of sentence vectors."""
    roles = [source.role for source in corpus.described_sources if source.role is not None]
    if not roles:
        return
    if teacher.stage is not None:
        reason = f"{teacher.title} has no files that define it"
    else:
        reason = f"{stage.method['name']} reads none"
    raise RecipeError(
        f"{place}: the role {roles[0]} of a source gives its texts a prompt of sentence vectors, but {reason}; "
        "leave out role, or use a method on sentence vectors and a teacher from a folder."
    )
