"""Settings of changed text: tokens that are masked or replaced in a stage, and copies of rows with other words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from limbeck.core.fields import NONE, Grown, Name, Place
from limbeck.core.strict import Strict

ModelName: TypeAlias = tuple[str, str | None]
"""A folder, `package:NAME` or a Hub name; and for a Hub name the branch, tag or commit, or None."""


Algorithm: TypeAlias = Literal["released", "printed"]
"""The two forms of TinyBERT's augmentation: that of the authors' code, and algorithm 1 of the paper."""

# Defaults of the copies, which are those of TinyBERT's paper: N_a, p_t and K.
_COPIES = 20
_PROBABILITY = 0.4
_CANDIDATES = 15


class AugmentSpec(Strict):
    """How a stage changes the text that teacher and student read."""

    replace_tokens: float = Field(0.0, ge=0, le=1)
    """Share of tokens replaced by random words of the vocabulary; helps where the text is narrow."""
    mask_tokens: float | None = Field(
        None,
        ge=0,
        lt=1,
        description=(
            "Share of tokens masked for masked language modelling, drawn anew in every epoch; default: 0.15 where a "
            "term of the method reads masked positions, else 0."
        ),
    )


class RowAugmentationSpec(Grown):
    """Copies of labelled rows with other words, made before training (TinyBERT, arXiv 1909.10351, algorithm 1)."""

    added = frozenset({"algorithm", "context", "stop_words"})

    method: Literal["tinybert"] = "tinybert"
    """How words are replaced: by a masked language model's proposals and by neighbours in word vectors."""
    algorithm: Algorithm | None = Field(
        None,
        description=(
            "released: the code of the authors, which made the published scores. It never replaces stop words and "
            "words with a digit. It predicts a word from two texts: the text with a mask, and behind it the whole "
            "text. It changes one text of a pair at a time, and leaves out equal copies. printed: algorithm 1 of the "
            "paper. Default: released."
        ),
    )
    stop_words: list[Name] | Place | None = Field(
        None,
        description=(
            "Words that are never replaced: english, a list, a text file with a word on each line, or none; default: "
            "english, the 173 function words of the authors' code, or none with algorithm: printed."
        ),
    )
    copies: int = Field(_COPIES, ge=1, le=10_000)
    """Copies of each row to train on (the paper's N_a); released: of each text of a pair, less those that are equal."""
    probability: float = Field(_PROBABILITY, gt=0, le=1)
    """Probability that a word is replaced (p_t)."""
    candidates: int = Field(_CANDIDATES, ge=1, le=1000)
    """Number of words that may replace a word, all equally likely (K)."""
    masked_lm: Place | None = Field(
        None,
        description=(
            "Model that proposes replacements for words that are one piece of its tokenizer; none: neighbours replace "
            "these words too; default: the teacher, where it has a masked language model head."
        ),
    )
    word_vectors: Place | None = Field(
        None,
        description=(
            "Where the neighbours of words of several pieces come from: a text file in GloVe's format (also .gz, .xz, "
            ".zst), or a model, for its word embeddings; none: these words stay; default: the teacher."
        ),
    )
    context: Literal["copy", "row"] | None = Field(
        None,
        description=(
            "What words are predicted from: the copy with the words replaced so far, or the original row, which takes "
            "fewer predictions by a factor of copies x probability; default: row; copy for printed."
        ),
    )
    seed: int | None = Field(None, ge=0, lt=2**32)
    """Seed of the copies; default: the run's seed. With one of its own, runs of several seeds share the copies."""

    @field_validator("stop_words")
    @classmethod
    def _names_stop_words(cls, stop_words: list[str] | str | None) -> list[str] | str | None:
        if stop_words == []:
            raise ValueError("the list of stop words is empty: list words, or write 'none' for no stop words")
        return stop_words

    @model_validator(mode="after")
    def _words_come_from_somewhere(self) -> RowAugmentationSpec:
        if self.masked_lm == NONE and self.word_vectors == NONE:
            raise ValueError(
                "augmented copies take new words from masked_lm or word_vectors, but both are 'none': give a "
                "model, a file of word vectors, or both"
            )
        return self


@dataclass(frozen=True)
class Augmentation:
    """TinyBERT's copies of rows, with the models that `RowAugmentationSpec` names, or the teacher in their place.

    A word that is a single token of the masked language model is replaced by a word that the model predicts, and any
    other word by one of its neighbours: words with similar word vectors.

    Args:
        copies: Number of copies of a row, N_a.
        probability: Probability that a word is replaced, p_t, above 0 up to 1.
        candidates: Number of words that may replace a word, K, all equally likely.
        masked_lm: The masked language model. Without one, all words are replaced by neighbours.
        word_vectors: A text file of word vectors in GloVe's format, or a model whose input embeddings are the vectors.
            Without them, words that the model does not predict are never replaced.
        context: The text that words are predicted from: `"copy"`, the copy with the words that were replaced so far, or
            `"row"`, the unchanged row, which takes about N_a p_t times fewer predictions. None is `"row"` for the
            released algorithm, and `"copy"` for the printed one.
        seed: Decides which words are replaced, and by which.
        algorithm: `"released"`, that of the authors' code, or `"printed"`, algorithm 1 of the paper; `augment_rows` has
            the differences.
        stop_words: Words that are never replaced. None is the 173 English ones of the authors' code for the released
            algorithm, and no word for the printed one.
    """

    copies: int = _COPIES
    probability: float = _PROBABILITY
    candidates: int = _CANDIDATES
    masked_lm: ModelName | None = None
    word_vectors: str | ModelName | None = None
    context: Literal["copy", "row"] | None = None
    seed: int = 0
    algorithm: Algorithm = "released"
    stop_words: tuple[str, ...] | None = None

    @property
    def context_of_words(self) -> Literal["copy", "row"]:
        """The text that words are predicted from."""
        if self.context is not None:
            return self.context
        return "row" if self.algorithm == "released" else "copy"
