"""What students of different teacher layers are ranked by: how much of the teacher's end they show."""

from __future__ import annotations

import math
import statistics
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.corpus import Corpus
from limbeck.evaluation import pair_similarities, spearman_agreement
from limbeck.recipe.plan import RunPlan
from limbeck.search.held_out_scores import PAIRS, held_out_pairs
from limbeck.search.last_layer_loss import BLOCKS, LastLayerLoss, held_out_batches

SCORES = ("agreement", "explained")
_BATCH = 32


def describe_layer_scores(plan: RunPlan) -> dict[str, Any]:
    """Return what tells these scores from others, by dotted names."""
    return {"scores": list(SCORES), "scores.pairs": PAIRS, "scores.blocks": BLOCKS, "scores.pooling": plan.pooling}


class LayerScores:
    """Scores students on held-out text against the output of the whole teacher, in percent.

    `agreement` is Spearman's correlation of the student's and the teacher's similarities of sentence pairs. `explained`
    is the share of the variance of the teacher's last hidden states that the best linear map of the student's explains.

    A student's own loss is no score: relations of another layer are easier or harder to learn, so losses of different
    layers are not on one scale. Relations at the teacher's last layer are none either: they are what one candidate is
    trained on, and the others are not. These two look at what the teacher gives in the end, which no candidate is
    trained on.

    Args:
        teacher: Whole and in evaluation mode, where students are measured.
        tokenizer: Of all models.
        corpus: With held-out text.
        plan: Of the recipe that is searched for.

    Raises:
        CorpusError: if too little text is held out.
    """

    def __init__(
        self, teacher: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, corpus: Corpus, plan: RunPlan
    ) -> None:
        self._device = teacher.device
        self._tokenizer = tokenizer
        self._pairs = held_out_pairs(corpus)
        self._encoding: dict[str, Any] = {
            "pooling": plan.pooling,
            "max_length": int(corpus.manifest["settings"]["length"]),
            "batch_size": _BATCH,
        }
        self._unexplained = LastLayerLoss(teacher, held_out_batches(corpus, tokenizer), [plan.student], "hidden")
        self._similarities = pair_similarities(teacher, tokenizer, self._pairs, **self._encoding).numpy()

    def measure(self, student: PreTrainedModel) -> dict[str, float]:
        """Return the scores of a student without taps, by name."""
        student = student.to(self._device)
        ours = pair_similarities(student, self._tokenizer, self._pairs, **self._encoding)
        agreement = spearman_agreement(ours.numpy(), self._similarities)
        return {"agreement": 100 * agreement, "explained": 100 * (1 - self._unexplained(student))}


def score_of(scores: dict[str, float]) -> float:
    """Return the mean of all scores; NaN if one is."""
    values = list(scores.values())
    return statistics.fmean(values) if all(map(math.isfinite, values)) else math.nan
