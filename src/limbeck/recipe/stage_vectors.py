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
from limbeck.models.streams import SENTENCE_KINDS
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
    """How a stage's student and teacher make vectors: as the teacher's files say; else as asked, or by the mean.

    Args:
        stage: The stage.
        terms: Its terms.
        pairing: Its models.
        teacher: Its teacher.
        assistant: The earlier stage whose student teaches here, if one does.
        place: Of the stage in the recipe.

    Raises:
        LimbeckError: for vectors that the student cannot make, or a pooling other than the teacher's.
    """
    asked_pooling = stage.method.get("pooling")
    of_teacher = pairing.sentence
    streams = streams_read(terms)
    if of_teacher is None and assistant is None:
        needs_files = "vector" in streams or ("pooled" in streams and asked_pooling is None)
        if needs_files:
            check_pooling_named(teacher.spec.model)
    if of_teacher is not None and streams & {"vector", "pooled"}:
        of_teacher.check_whole(teacher.spec.model, teacher.shape.hidden)

    if "vector" in streams:
        if assistant is not None and assistant.kept_map is not None:
            raise RecipeError(
                f"{place}.teacher: {teacher.title} makes its vectors by a learned map, which is finished only at "
                "the end of that stage; let the recipe's teacher teach, or make two recipes."
            )
        of_student = finished_pooling(of_teacher, asked_pooling)
        if kept_map_of(terms) is not None:
            of_student = replace(of_student, modules=())  # The map takes the place of the teacher's modules.
        return of_student, finished_pooling(of_teacher)

    if "pooled" not in streams or of_teacher is None:
        pooling = finished_pooling(None, asked_pooling)
        return pooling, pooling
    if asked_pooling not in (None, of_teacher.pooling):
        raise RecipeError(
            f"{place}.method.pooling is '{asked_pooling}', but the vectors of '{teacher.title}' are made by "
            f"'{of_teacher.pooling}'; leave it out."
        )
    if not of_teacher.fits(pairing.student.hidden):
        raise RecipeError(
            f"{place}: '{teacher.title}' makes its vectors by {of_teacher}, which cannot follow a student of width "
            f"{pairing.student.hidden}; give a student as wide as the teacher, or use the method aligned_embedding."
        )
    return of_teacher, of_teacher


def reads_prompts(
    corpus: CorpusSpec, stage: StageSpec, terms: Sequence[Term], teacher: TeacherInfo, place: str
) -> bool:
    """Whether a stage's terms read sentence vectors, whose prompts a teacher's files may give.

    Raises:
        RecipeError: for roles that nothing reads, and prompts that part the tokens of student and teacher where terms
            compare them.
    """
    reads_vectors = bool(streams_read(terms) & set(SENTENCE_KINDS))
    if not reads_vectors or teacher.stage is not None:
        _check_no_role(corpus, stage, teacher, place)
        return False
    student_prompts = stage.text.student_prompts or corpus.student_prompts
    token_terms = [term.name for term in terms if compares_tokens(term)]
    if student_prompts == NONE and token_terms:
        raise RecipeError(
            f"{place}: student_prompts is none, so the teacher reads tokens that the student does not, but the "
            f"term '{token_terms[0]}' compares tokens; leave student_prompts out, or give that term the weight 0."
        )
    return True


def _check_no_role(corpus: CorpusSpec, stage: StageSpec, teacher: TeacherInfo, place: str) -> None:
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
