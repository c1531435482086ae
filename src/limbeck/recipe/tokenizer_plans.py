"""`TokenizerPlan`: where the tokenizer of a teacher or a student comes from, known before any text is read.

A tokenizer is read from the files of a model, or trained on the text of a run. Two models *read alike* if their
tokenizers give the same tokens for the same text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vocabularies import vocabulary_difference


@dataclass(frozen=True)
class VocabularyCut:
    """How the vocabulary of a tokenizer is cut to the pieces that a text uses; one of the first two is given.

    Args:
        pieces: Number of pieces that stay.
        coverage: Share of the text's tokens whose pieces stay.
        counted: Sources of the text on which pieces are counted; empty for the text that the student is trained on.
        always: File of words whose pieces always stay; empty for none.
        other_texts: What becomes of texts that hold other pieces, where student and teacher are compared token by
            token.
    """

    pieces: int | None
    coverage: float | None = None
    counted: tuple[str, ...] = ()
    always: str = ""
    other_texts: Literal["skip", "keep"] = "skip"

    @property
    def size(self) -> str:
        """Its size in words, as far as it is known before the text is read."""
        if self.pieces is not None:
            return f"{self.pieces:,} pieces"
        return f"the pieces of {self.coverage:.6g} of the text's tokens"


@dataclass(frozen=True)
class TokenizerPlan:
    """Where a tokenizer comes from.

    Args:
        model: The model whose files have it; empty for one that is trained.
        revision: Branch, tag or commit of a Hub model.
        trained_words: Number of WordPieces to train on the text; 0 for a tokenizer that is read.
        like: For a trained one, the tokenizer whose case it follows; None lowers the case, as BERT's usual one does.
        has_segments: For a trained one, whether its model tells the two texts of a pair apart.
        cut: How its vocabulary is cut; None for a whole one.
    """

    model: str = ""
    revision: str | None = None
    trained_words: int = 0
    like: TokenizerPlan | None = None
    has_segments: bool = False
    cut: VocabularyCut | None = None


def read_alike(student: TokenizerPlan, teacher: TokenizerPlan) -> bool:
    """Whether two tokenizers give the same tokens; see `reading_difference`."""
    return not reading_difference(student, teacher)


def reading_difference(student: TokenizerPlan, teacher: TokenizerPlan) -> str:
    """Return the first difference of two tokenizers in a sentence without its period; empty where they are alike.

    Both are loaded where their places differ.

    Raises:
        ModelError: for a tokenizer that cannot be read.
    """
    if student == teacher:
        return ""
    if student.trained_words or teacher.trained_words:
        return "The student's WordPieces are trained on the text"
    if student.cut is not None:
        return (
            f"The student's vocabulary is cut to {student.cut.size}; for methods on tokens cut the teacher's first, "
            "by limbeck trim"
        )
    if teacher.cut is not None:
        return f"The teacher's vocabulary is cut to {teacher.cut.size}"
    student_tokenizer = load_tokenizer(student.model, revision=student.revision)
    teacher_tokenizer = load_tokenizer(teacher.model, revision=teacher.revision)
    return vocabulary_difference(student_tokenizer, teacher_tokenizer)
