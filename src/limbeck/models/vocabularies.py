"""Checks that two tokenizers have the same vocabulary, and that a tokenizer fits its model."""

from __future__ import annotations

from collections.abc import Mapping

from transformers import PreTrainedTokenizerBase

from limbeck.errors import ModelError

_SPECIAL_TOKENS = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
_MOST_EXAMPLES = 3
"""Most differing tokens that a message names."""

# Case, accents, punctuation, digits, wide characters and runs of spaces, on which normalisers disagree.
_PROBES = (
    "The limbeck stands in the cellar.",
    "THE LIMBECK Stands",
    "naïve café, Ångström",
    "don't  stop -- e.g. 3.14 (50%)",
    "蒸馏 дистилляция تقطير",
    "ﬁne ½ ™\tＡＢＣ",
)


def check_same_vocabulary(student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase) -> None:
    """Refuse tokenizers that would give student and teacher different tokens for the same text.

    Raises:
        ModelError: naming the first difference, and what to do.
    """
    difference = vocabulary_difference(student, teacher)
    if difference:
        raise ModelError(
            f"{difference}, but student and teacher must read the same tokens; leave the student's tokenizer out, "
            "so that the teacher's is used."
        )


def vocabulary_difference(student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase) -> str:
    """Return the first difference of two tokenizers in a sentence without its period; empty where they are alike.

    Compares the ids of all tokens, the special tokens, and how a few probe strings are split, which shows
    differences of case, accents and punctuation that the vocabulary alone hides.
    """
    # The ids of all tokens.
    student_ids = student.get_vocab()
    teacher_ids = teacher.get_vocab()
    differing = _differing_tokens(student_ids, teacher_ids)
    if differing:
        examples = []
        for token in differing[:_MOST_EXAMPLES]:
            student_id = student_ids.get(token, "missing")
            teacher_id = teacher_ids.get(token, "missing")
            examples.append(f"{token!r} is {student_id} and {teacher_id}")
        return (
            f"The vocabularies of student ({len(student_ids)} tokens) and teacher ({len(teacher_ids)}) differ in "
            f"{len(differing)} tokens: {', '.join(examples)}"
        )
    # Two tokenizers of one vocabulary may use other tokens of it as special ones, or split text differently.
    for name in _SPECIAL_TOKENS:
        student_id = getattr(student, f"{name}_token_id")
        teacher_id = getattr(teacher, f"{name}_token_id")
        if student_id != teacher_id:
            return f"The {name} token of student ({student_id}) and teacher ({teacher_id}) differ"
    for probe in _PROBES:
        if student(probe)["input_ids"] != teacher(probe)["input_ids"]:
            return (
                f"Student and teacher have the same vocabulary but split text differently: {probe!r} gives "
                f"{student.tokenize(probe)[:4]} and {teacher.tokenize(probe)[:4]}"
            )
    return ""


def _differing_tokens(student_ids: Mapping[str, int], teacher_ids: Mapping[str, int]) -> list[str]:
    """Return the tokens that have different ids, or are in only one vocabulary; those of the lowest ids first."""
    tokens = student_ids.keys() | teacher_ids.keys()
    differing = [token for token in tokens if student_ids.get(token) != teacher_ids.get(token)]

    def lowest_id(token: str) -> int:
        """The lower of a token's ids in the two vocabularies."""
        # A token that is missing counts as behind the last.
        student_id = student_ids.get(token, len(student_ids))
        teacher_id = teacher_ids.get(token, len(teacher_ids))
        return min(student_id, teacher_id)

    return sorted(differing, key=lambda token: (lowest_id(token), token))


def check_fits_model(tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
    """Refuse a tokenizer with ids that a model with `vocabulary` embedding rows does not have.

    A model may have more rows than tokens (padded for speed), never fewer.

    Raises:
        ModelError: naming the highest id.
    """
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= vocabulary:
        raise ModelError(
            f"The tokenizer has token ids up to {highest} but the model only {vocabulary} embedding rows; "
            "use the tokenizer that was saved with the model."
        )
