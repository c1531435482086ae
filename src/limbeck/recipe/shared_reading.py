"""Shared readings: a teacher that reads the pieces of a student whose vocabulary is cut, so that tokens are compared.

Such a teacher has the rows of these pieces alone, in its embeddings and in its output layer. So both models read the
same ids, every method works, and a distribution over the vocabulary is renormalised over the pieces that stay. A text
that holds other pieces would be cut differently by the teacher's whole tokenizer: the recipe says whether such texts
are left out (`student.vocabulary.other_texts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from limbeck.core.lists import enumerate_words
from limbeck.corpus.settings import CorpusSettings, LabelledSettings
from limbeck.errors import RecipeError
from limbeck.methods.pairing import Pairing
from limbeck.methods.term import Term
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo
from limbeck.recipe.stage_checks import compare_tokens
from limbeck.recipe.tokenizer_plans import TokenizerPlan, read_alike

if TYPE_CHECKING:
    from limbeck.recipe.stage_plan import StagePlan


def plan_shared_reading(
    terms: Sequence[Term],
    pairing: Pairing,
    settings: CorpusSettings | LabelledSettings,
    student: StudentPlan,
    teacher: TeacherInfo,
    place: str,
) -> TokenizerPlan | None:
    """Return the tokenizer of a teacher that reads its student's tokens, pieces of a cut vocabulary; None for others.

    Student and teacher read the same pieces where three things hold. Terms compare tokens or layers. The student's
    vocabulary is cut from one like the teacher's. The teacher is a model that reads text without labels. Other stages
    compare whole texts, or are refused.

    Args:
        terms: The terms of the stage.
        pairing: Its models, and the task of its corpus.
        settings: The settings of its text.
        student: Its student.
        teacher: Its teacher.
        place: Where it stands in the recipe.

    Raises:
        RecipeError: for a stream of which texts would be left out, since these could not be counted.
    """
    # Without tokens or layers to compare, each model reads the text by its own tokenizer.
    if not compare_tokens(terms, pairing):
        return None

    # Only a teacher that reads text without labels can read other pieces than its own.
    teacher_reads_tokens = teacher.is_read and teacher.facts.reads == "tokens"
    if not teacher_reads_tokens or isinstance(settings, LabelledSettings):
        return None

    # Two equal tokenizers make the same pieces already. Otherwise the student's has to be cut from one like the
    # teacher's.
    cut = student.tokenizer.cut
    if cut is None or teacher.tokenizer is None or student.tokenizer == teacher.tokenizer:
        return None
    before_cut = replace(student.tokenizer, cut=None)
    if not read_alike(before_cut, teacher.tokenizer):
        return None
    if settings.streaming and cut.other_texts == "skip":
        raise RecipeError(
            f"{place}: texts with pieces that the student lacks are left out (student.vocabulary.other_texts), "
            "which needs a count of them, but a stream cannot be counted; set student.vocabulary.other_texts: "
            "keep, or leave corpus.streaming out."
        )
    return teacher.tokenizer


def describe_shared_reading(stages: Sequence[StagePlan]) -> list[str]:
    """Describe which tokens the teachers of a student with a cut vocabulary read, in clauses without their periods.

    Args:
        stages: The stages of the student.

    Returns:
        The clauses; none where no teacher reads the text.
    """
    # In some stages the teacher reads the student's pieces, in others those of its own vocabulary. Stages are named
    # only where there are both kinds.
    shared_stages = [stage for stage in stages if stage.whole_tokenizer is not None]
    separate_stages = [stage for stage in stages if stage.teacher_tokenizer is not None]
    clauses = []
    if shared_stages:
        reader = "the teacher"
        if separate_stages:
            titles = enumerate_words([stage.spec.title for stage in shared_stages], "and")
            reader = f"in {titles} the teacher"
        if shared_stages[0].skips_other_texts:
            clauses.append(f"{reader} reads these too, and texts with other pieces are left out")
        else:
            clauses.append(f"{reader} reads these too, also in texts that it would cut into other pieces")
    if any(_teaches_vocabulary(term) for stage in shared_stages for term in stage.terms):
        clauses.append("its distributions over the vocabulary are renormalised over these")
    if separate_stages:
        reader = "the teacher"
        if shared_stages:
            titles = enumerate_words([stage.spec.title for stage in separate_stages], "and")
            reader = f"in {titles} it"
        clauses.append(f"{reader} reads its own, so that terms are of whole texts")
    return clauses


def _teaches_vocabulary(term: Term) -> bool:
    """Whether a term reads the teacher's scores, which in a shared reading are those of tokens."""
    return any(key.name == "logits" for key in term.teacher)
