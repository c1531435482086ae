"""Copies of labelled rows with other words: the models and files that they are made with.

Words of a copy are replaced by proposals of a masked language model, by neighbours in word vectors, or by both (the
augmentation of TinyBERT). `corpus.augment` names the models; without a name it is the stage's teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from transformers import PreTrainedConfig

from limbeck.core.fields import NONE
from limbeck.corpus.augmentation.stop_words import english_stop_words, read_stop_words, stop_words_of
from limbeck.corpus.settings import Augmentation, CorpusSettings, LabelledSettings, ModelName, RowAugmentationSpec
from limbeck.errors import ModelError, RecipeError
from limbeck.models.heads import check_has_head
from limbeck.models.loading import load_config
from limbeck.models.weight_files import check_not_pickled

_TEACHER = "teacher"
"""The value of keys that name a model which stands for the stage's teacher, as a missing value does."""
_ENGLISH = "english"
"""The value of `corpus.augment.stop_words` that names the words of TinyBERT's authors."""
_VECTOR_FILES = (".txt", ".vec", ".gz", ".xz", ".zst")
"""Suffixes of files of word vectors, packed or not."""


def augmentation(spec: RowAugmentationSpec, title: str, teacher: ModelName | None, seed: int) -> Augmentation:
    """Find what rows are copied with; no weight is read.

    Args:
        spec: The keys of `corpus.augment`.
        title: The name of the stage's teacher in messages.
        teacher: The teacher; None where it is the student of an earlier stage, which does not exist yet.
        seed: The seed of the run.

    Raises:
        LimbeckError: if a model or file is missing, or the model has no masked language model's head.
    """
    masked_lm = _find_model("masked_lm", spec.masked_lm, title, teacher)
    if masked_lm is not None:
        _check_proposes_words(masked_lm, title, is_given=spec.masked_lm is not None)

    # A file of word vectors, else the embeddings of a model.
    word_vectors: str | ModelName | None = _find_vector_file(spec.word_vectors)
    if word_vectors is None:
        word_vectors = _find_model("word_vectors", spec.word_vectors, title, teacher)
        if word_vectors is not None:
            _load_config("word_vectors", word_vectors)  # This refuses a model that cannot be read.

    return Augmentation(
        copies=spec.copies,
        probability=spec.probability,
        candidates=spec.candidates,
        masked_lm=masked_lm,
        word_vectors=word_vectors,
        context=spec.context,
        seed=seed if spec.seed is None else spec.seed,
        algorithm=spec.algorithm or "released",
        stop_words=_find_stop_words(spec.stop_words),
    )


_Key = Literal["masked_lm", "word_vectors"]
"""Keys of `corpus.augment` that name a model: `teacher` or nothing is the stage's teacher, `none` no model."""


def _find_model(key: _Key, name: str | None, title: str, teacher: ModelName | None) -> ModelName | None:
    """The model that a key of an augmentation names, with its revision; None where the key is `none`.

    Args:
        key: The key.
        name: Its value.
        title: The name of the stage's teacher in messages.
        teacher: The stage's teacher; None where it does not exist before the run.
    """
    if name == NONE:
        return None
    if name is None or name == _TEACHER:
        if teacher is None:
            raise RecipeError(
                f"corpus.augment.{key} would be {title}, which exists only after this run: name another model, or "
                f"'{NONE}'."
            )
        return teacher
    check_not_pickled(name)
    # The key has no revision.
    return name, None


def _find_vector_file(name: str | None) -> str | None:
    """The file of word vectors that `word_vectors` names; None where it names a model or nothing."""
    if name is None or name in (_TEACHER, NONE):
        return None
    file = Path(name).expanduser()
    if file.is_file():
        return str(file)
    if file.suffix in _VECTOR_FILES:
        raise RecipeError(
            f"corpus.augment.word_vectors: there is no file '{name}'; give a text file of word vectors, or a model."
        )
    return None


def _find_stop_words(stop_words: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """The words that `stop_words` names; None where it is not given, so that the algorithm decides.

    Raises:
        CorpusError: if it names a file that cannot be read, or holds no word.
        RecipeError: if there is no such file.
    """
    if stop_words is None:
        return None
    if stop_words == NONE:
        return ()
    if stop_words == _ENGLISH:
        return english_stop_words()
    if not isinstance(stop_words, str):
        return tuple(stop_words)
    file = Path(stop_words).expanduser()
    if not file.is_file():
        raise RecipeError(
            f"corpus.augment.stop_words: there is no file '{stop_words}'; give {_ENGLISH}, {NONE}, a list of words, or "
            "a text file with a word on each line."
        )
    return read_stop_words(file)


def _check_proposes_words(model: ModelName, title: str, *, is_given: bool) -> None:
    """Refuse a model without a masked language model's head.

    Args:
        model: The model.
        title: The name of the stage's teacher in messages.
        is_given: Whether the recipe names the model; otherwise it is the stage's teacher.
    """
    name, _ = model
    try:
        check_has_head(name, _load_config("masked_lm", model), "masked_lm")
    except ModelError as error:
        if is_given:
            raise RecipeError(f"corpus.augment.masked_lm: {error}") from None
        raise RecipeError(
            f"corpus.augment.masked_lm is missing, and the teacher '{title}' has no masked language model head: "
            "name a model with such a head, for example the model that the teacher was fine-tuned from, or "
            f"'{NONE}' to use only neighbours in word vectors."
        ) from None


def _load_config(key: _Key, model: ModelName) -> PreTrainedConfig:
    """Load the configuration of a model that a key names, with the key in the error."""
    name, revision = model
    try:
        return load_config(name, revision)
    except ModelError as error:
        raise RecipeError(f"corpus.augment.{key}: {error}") from None


def summarise_copies(settings: CorpusSettings | LabelledSettings, *, labels: bool) -> str:
    """A sentence about how rows are augmented; empty where they are not.

    Args:
        settings: The settings of the rows.
        labels: Whether their labels are learned.
    """
    if not isinstance(settings, LabelledSettings) or settings.augment is None:
        return ""
    copies = settings.augment
    replaced_by = []
    if copies.masked_lm is not None:
        name, _ = copies.masked_lm
        replaced_by.append(f"proposals of {name}")
    if isinstance(copies.word_vectors, str):
        replaced_by.append(f"neighbours in {copies.word_vectors}")
    elif copies.word_vectors is not None:
        name, _ = copies.word_vectors
        replaced_by.append(f"neighbours in {name}")

    quantity = f"{copies.copies} copies of each"
    if copies.algorithm == "released":
        # Each text of a pair has its copies, of which equal ones are left out.
        quantity = f"up to {copies.copies} copies of each text"
    summary = (
        f"{quantity}, words replaced with probability {copies.probability:g} by {' and '.join(replaced_by)}; "
        f"{_describe_stop_words(copies)}"
    )
    if labels:
        summary += (
            "; each copy keeps the label of its row, which this stage learns, though its new words may not fit "
            "that label"
        )
    return summary


def _describe_stop_words(copies: Augmentation) -> str:
    """The words that an augmentation never replaces, as a sentence."""
    if not stop_words_of(copies):
        return "negations may be replaced too"
    if copies.stop_words in (None, english_stop_words()):
        return f"the {len(english_stop_words())} English stop words stay"
    return f"the {len(copies.stop_words or ()):,} stop words of the recipe stay"
