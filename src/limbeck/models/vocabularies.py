"""Checks of vocabularies: of two tokenizers, and of a tokenizer and a model."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from limbeck.errors import ModelError

_SPECIAL = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")

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

    Compares the ids of all tokens, the special tokens, and how a few probe strings are split, which shows
    differences of case, accents and punctuation that the vocabulary alone hides.

    Raises:
        ModelError: naming the first difference, and what to do.
    """
    way_out = "both must read the same tokens: leave out the student's tokenizer to use the teacher's"
    ours, theirs = student.get_vocab(), teacher.get_vocab()
    differing = [token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token)]
    if differing:
        first = sorted(differing, key=lambda t: (min(ours.get(t, len(ours)), theirs.get(t, len(theirs))), t))[:3]
        examples = ", ".join(f"{t!r} is {ours.get(t, 'missing')} and {theirs.get(t, 'missing')}" for t in first)
        raise ModelError(
            f"The vocabularies of student ({len(ours)} tokens) and teacher ({len(theirs)}) differ in "
            f"{len(differing)} tokens: {examples}; {way_out}."
        )
    for kind in _SPECIAL:
        ours_id, theirs_id = getattr(student, f"{kind}_token_id"), getattr(teacher, f"{kind}_token_id")
        if ours_id != theirs_id:
            raise ModelError(f"The {kind} token of student ({ours_id}) and teacher ({theirs_id}) differ; {way_out}.")
    for probe in _PROBES:
        if student(probe)["input_ids"] != teacher(probe)["input_ids"]:
            raise ModelError(
                f"Student and teacher have the same vocabulary but split text differently: {probe!r} gives "
                f"{student.tokenize(probe)[:4]} and {teacher.tokenize(probe)[:4]}; {way_out}."
            )


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
