"""Batches of a task's tokens, as its model takes them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from limbeck.corpus.batches import LabelKind, PadCollator
from limbeck.corpus.labelled import TOKEN_TYPES
from limbeck.evaluation.tasks.task import TaskKind

_LABELS: dict[str, LabelKind] = {"classification": "class", "regression": "value", "question_answering": "span"}


class TaskCollator:
    """Pads rows to the longest of their batch and names their labels as the model does.

    Questions are always padded on the right, so that the places of tokens in a row and in a batch agree.

    Args:
        model: Whether it knows segments.
        tokenizer: Whose padding token and side are used.
        kind: Of the task.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any, kind: TaskKind) -> None:
        side = "right" if kind == "question_answering" else tokenizer.padding_side
        self._labelled = PadCollator(tokenizer.pad_token_id, side=side, labels=_LABELS[kind])
        self._unlabelled = PadCollator(tokenizer.pad_token_id, side=side)
        self._spans = kind == "question_answering"
        segments = getattr(model.config, "type_vocab_size", 2) >= 2
        self._segments = segments and TOKEN_TYPES in inspect.signature(model.forward).parameters

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch; `labels`, or `start_positions` and `end_positions`, where the rows are labelled."""
        batch = (self._labelled if "labels" in rows[0] else self._unlabelled)(rows)
        if not self._segments:
            batch.pop(TOKEN_TYPES, None)
        if self._spans and "labels" in batch:
            spans = batch.pop("labels")
            batch |= {"start_positions": spans[:, 0], "end_positions": spans[:, 1]}
        return batch
