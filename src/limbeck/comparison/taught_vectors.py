"""`TaughtVectors`: compares students with the sentence vectors that a teaching gives of held-out text.

It takes the place of `LastLayers` and `PairAgreement` where no teacher is loaded, as with stored outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.comparison.last_layers import Thirds
from limbeck.core.blocks import counted
from limbeck.corpus import Corpus
from limbeck.corpus.batches.batch import Batch, read_batch
from limbeck.corpus.batches.collating import PadCollator
from limbeck.errors import CorpusError, ModelError
from limbeck.evaluation import spearman_agreement
from limbeck.methods.teaching import Teaching
from limbeck.models.families import depth
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap

TEXTS = 1024
"""Most held-out texts that are compared."""
FEWEST_TEXTS = 12
"""Fewest held-out texts: with fewer, the thirds of a fit would have next to no texts."""
_BATCH = 32
"""Most texts that a student reads at once."""
_FEWEST_BATCHES = 3
"""Fewest batches of the texts: a linear map is fitted on two thirds of them, and measured on the rest."""
_SEED = 0
"""Seed of the pairs, which are the same for all students."""


def stream_of_vectors(teaching: Teaching) -> str:
    """The stream with a teaching's sentence vectors: the finished ones, or else the pooled ones.

    Raises:
        ModelError: for a teaching that gives none.
    """
    for name in ("vector", "pooled"):
        if name in teaching.facts.widths:
            return name
    raise ModelError(
        f"{teaching.facts.title} have no sentence vectors, so students cannot be compared with the teacher on "
        "text; give the teacher's own model, or score the students on tasks (evaluation.tasks)."
    )


class TaughtVectors:
    """Compares students with the sentence vectors of their teacher, on text that none of them trains on.

    The teacher's vectors are read once and kept.

    Args:
        teaching: Gives the vectors, without a model.
        corpus: The corpus; its first held-out rows are compared, as training reads them.
        tokenizer: The tokenizer of the students.
        device: The device that computes.
        texts: Most rows.

    Raises:
        ModelError: for a teaching without sentence vectors.
        CorpusError: if too little text is held out.
    """

    def __init__(
        self,
        teaching: Teaching,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        *,
        device: torch.device,
        texts: int = TEXTS,
    ) -> None:
        stream = stream_of_vectors(teaching)
        rows = list(islice(corpus.held_out, texts))
        if len(rows) < FEWEST_TEXTS:
            raise CorpusError(
                f"{counted(len(rows), 'text')} held out, but comparing students needs at least {FEWEST_TEXTS}; "
                "raise corpus.held_out, or give more text."
            )
        self.device = device
        collate = PadCollator(tokenizer.pad_token_id)
        # Few texts make small batches, so that there are enough of them to fit and measure the maps of students on.
        size = min(_BATCH, len(rows) // _FEWEST_BATCHES)
        key = StreamKey(stream, teaching.facts.output_layer)
        # The texts in batches, and the teacher's vectors of each batch, `[texts, width]`.
        self._batches: list[Batch] = []
        self._vectors: list[Tensor] = []
        for start in range(0, len(rows), size):
            batch = read_batch(collate(rows[start : start + size]))
            vectors = teaching.read(batch)[key]
            self._batches.append(batch)
            self._vectors.append(vectors.float().cpu())

    def unexplained(self, student: PreTrainedModel, pooling: str | SentenceHead) -> float:
        """The share of the variance of the teacher's vectors that the best linear map of the student's leaves.

        0 is a student whose vectors have all that the teacher's have, and about 1 one that has learned nothing; NaN
        where the teacher's vectors are all alike. The map is the ridge regression of `LastLayers.compare`, measured on
        the last third of the texts.

        Args:
            student: The student in eval mode, on the device.
            pooling: How it makes sentence vectors.
        """
        thirds = Thirds(len(self._batches))
        for vectors, teacher_vectors in zip(self._read(student, pooling, "pooled"), self._vectors, strict=True):
            thirds.add(vectors, teacher_vectors)
        # Vectors that are all alike have no variance to explain.
        if thirds.variance == 0:
            return math.nan
        return thirds.error() / thirds.variance

    def agreement(self, student: PreTrainedModel, pooling: str | SentenceHead, pairs: int) -> float:
        """Spearman's correlation of the student's and the teacher's cosines of pairs of texts, -1 to 1.

        Args:
            student: The student in eval mode, on the device.
            pooling: How it makes sentence vectors.
            pairs: The number of pairs, which are drawn at random.
        """
        # A pooling with modules behind it makes finished vectors, by which the student is used.
        stream = "vector" if isinstance(pooling, SentenceHead) else "pooled"
        student_vectors = torch.cat(list(self._read(student, pooling, stream)))
        teacher_vectors = torch.cat(self._vectors)

        # Two different texts make a pair. The second is drawn among the `count - 1` texts that are not the first: these
        # are numbered without a gap, so from the number of the first on, the index of a text is one more.
        count = len(teacher_vectors)
        generator = np.random.default_rng(_SEED)
        first = torch.from_numpy(generator.integers(count, size=pairs))
        number_among_others = torch.from_numpy(generator.integers(count - 1, size=pairs))
        second = number_among_others + (number_among_others >= first).long()
        student_cosines = torch.cosine_similarity(student_vectors[first], student_vectors[second])
        teacher_cosines = torch.cosine_similarity(teacher_vectors[first], teacher_vectors[second])
        return spearman_agreement(student_cosines.numpy(), teacher_cosines.numpy())

    def _read(self, student: PreTrainedModel, pooling: str | SentenceHead, stream: str) -> Iterator[Tensor]:
        """Yield the student's vectors of each batch, `[texts, width]`, on the CPU."""
        key = StreamKey(stream, depth(student.config))
        with StreamTap(student, [key], pooling=pooling) as tap:
            for batch in self._batches:
                inputs = {name: tensor.to(self.device) for name, tensor in batch.student.items()}
                with torch.no_grad():
                    yield tap(**inputs)[key].float().cpu()
