"""The loss that shapes are compared by: what a student's last layer lacks of its teacher's, from 0 to about 1."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Literal, TypeAlias

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.comparison.held_out import common_relation_heads, compare_last_layers
from limbeck.corpus import Corpus, PadCollator
from limbeck.errors import CorpusError
from limbeck.models.families import Shape, shape_of
from limbeck.recipe.plan import RunPlan

LossKind: TypeAlias = Literal["hidden", "relations"]

BLOCKS = 96
_BATCH = 32
_FEWEST = 3


class LastLayerLoss:
    """Measures what students lack of their teacher on held-out text, alike for every shape and method.

    `hidden` is the hidden-state loss of the comparative study (arXiv 2310.08797, equation 6) at the last layers, under
    the linear map that fits best, as a share of the variance of the teacher's hidden states. `relations` is the mean
    divergence of query-query, key-key and value-value relations (MiniLMv2 section 3.1). Both are divided by what an
    untrained student has, the same one for all shapes: 0 is a student that equals its teacher, about 1 one that has not
    learned.

    Args:
        teacher: Whole and in evaluation mode, where students are measured.
        batches: `input_ids` and `attention_mask`, `[B, L]`, at least three.
        students: The shapes that are compared; they share the relation heads.
        kind: Which of the two.
        untrained: The loss by which all are divided; above 0.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        batches: Sequence[Mapping[str, Tensor]],
        students: Sequence[Shape],
        kind: LossKind,
        untrained: float = 1.0,
    ) -> None:
        self._teacher = teacher
        self._batches = batches
        self._heads = common_relation_heads(shape_of(teacher.config), students)
        self._kind = kind
        self._untrained = untrained

    def __call__(self, student: PreTrainedModel) -> float:
        """Return the loss of a student without taps."""
        student = student.to(self._teacher.device)
        relations, explained = compare_last_layers(student, self._teacher, self._batches, heads=self._heads)
        assert explained is not None  # there are three batches
        return (relations if self._kind == "relations" else 1 - explained) / self._untrained

    def divided_by(self, untrained: float) -> LastLayerLoss:
        """Return the same loss on the scale of an untrained student's."""
        found = copy.copy(self)
        found._untrained = untrained
        return found


def loss_kind(plan: RunPlan) -> LossKind:
    """Return which loss says what a method teaches: `hidden` where it reaches the end of the student's last block.

    A method that stops at the queries, keys and values of that block leaves its hidden states untrained.
    """
    last = plan.student.layers
    keys = [key for stage in plan.own_stages for term in stage.terms for key in term.student]
    reaches_end = any(
        key.kind in ("logits", "pooled") or (key.kind in ("hidden", "cls") and key.layer == last) for key in keys
    )
    return "hidden" if reaches_end else "relations"


def held_out_batches(corpus: Corpus, tokenizer: PreTrainedTokenizerBase) -> list[dict[str, Tensor]]:
    """Return the first held-out blocks, in the order of the sources, in at least three batches.

    Raises:
        CorpusError: if less is held out than that takes.
    """
    rows = list(islice(corpus.held_out, BLOCKS))
    if len(rows) < _FEWEST:
        raise CorpusError(
            f"{len(rows)} blocks are held out, and students are compared on {_FEWEST} or more; raise corpus.held_out."
        )
    size = min(_BATCH, len(rows) // _FEWEST)
    collate = PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side)
    return [collate(rows[start : start + size]) for start in range(0, len(rows), size)]
