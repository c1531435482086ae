"""`PairAgreement`: how far students agree with their teacher in the similarities of sentence pairs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.corpus import Corpus
from limbeck.evaluation import SentencePair, pair_similarities, spearman_agreement
from limbeck.models.sentence_heads import SentenceHead


class PairAgreement:
    """Spearman's correlation of students' similarities of sentence pairs with their teacher's.

    The teacher's similarities are computed once, when the object is made.

    Args:
        teacher: The teacher, on the device on which students are compared.
        tokenizer: The tokenizer of all models.
        corpus: The corpus; texts are cut to the length of its blocks.
        pairs: The sentence pairs.
        pooling: How the teacher makes sentence vectors.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        corpus: Corpus,
        pairs: Sequence[SentencePair],
        pooling: str | SentenceHead,
    ) -> None:
        self._tokenizer = tokenizer
        self._texts = [(pair.first, pair.second) for pair in pairs]
        self._max_length = int(corpus.manifest["settings"]["length"])
        self._pooling = pooling
        self._teacher_similarities = self._similarities(teacher, pooling)

    def of_student(self, student: PreTrainedModel, pooling: str | SentenceHead | None = None) -> float:
        """Return the agreement of a student, -1 to 1.

        Args:
            student: The student.
            pooling: How the student makes sentence vectors; None takes the teacher's way.
        """
        similarities = self._similarities(student, pooling or self._pooling)
        return spearman_agreement(similarities, self._teacher_similarities)

    def _similarities(self, model: PreTrainedModel, pooling: str | SentenceHead) -> NDArray[np.float32]:
        """Return the cosine of each pair, `[pairs]`."""
        cosines = pair_similarities(model, self._tokenizer, self._texts, pooling=pooling, max_length=self._max_length)
        return np.asarray(cosines.numpy())
