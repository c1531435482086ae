"""Tokenizers: loading one, and proving that student and teacher read text alike."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from limbeck.errors import ModelError
from limbeck.models.loading import one_line, quiet, unreachable
from limbeck.models.locating import hub_answers, is_local, resolve_model

# Without one of these `transformers` makes up a tokenizer of five tokens instead of failing.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
_SPECIAL = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
# Case, accents, punctuation, digits, wide characters and runs of spaces: what normalisers disagree on.
_PROBES = (
    "The limbeck stands in the cellar.",
    "THE LIMBECK Stands",
    "naïve café, Ångström",
    "don't  stop -- e.g. 3.14 (50%)",
    "蒸馏 дистилляция تقطير",
    "ﬁne ½ ™\tＡＢＣ",
)


def load_tokenizer(name_or_path: str | Path, *, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load a tokenizer.

    Args:
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        revision: A branch, tag or commit on the Hub.

    Raises:
        ModelError: for a missing folder, one without tokenizer files, unreadable ones, or a Hub name that
            cannot be reached.
    """
    resolved = resolve_model(name_or_path)
    local = is_local(resolved)
    if local and not any((Path(resolved) / file).is_file() for file in _TOKENIZER_FILES):
        raise ModelError(f"The folder '{name_or_path}' has no tokenizer; save the model's tokenizer there.")
    with quiet():
        try:
            return AutoTokenizer.from_pretrained(
                resolved,
                revision=revision or "main",
                trust_remote_code=False,
                local_files_only=not local and not hub_answers(),
            )
        except Exception as error:  # tokenizers raises bare Exception for a damaged tokenizer.json
            if local:
                raise ModelError(f"The tokenizer of '{name_or_path}' cannot be read: {one_line(error)}") from error
            raise unreachable(name_or_path) from error


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
        examples = ", ".join(f"{t!r} is {_id(ours, t)} and {_id(theirs, t)}" for t in first)
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
                f"Student and teacher have one vocabulary but split text differently: {probe!r} gives "
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


def _id(vocabulary: dict[str, int], token: str) -> str:
    return str(vocabulary.get(token, "missing"))
