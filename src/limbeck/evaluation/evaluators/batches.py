"""`TaskCollator`, which makes batches of encoded rows as the model of a task takes them."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from limbeck.corpus.batches.collating import PadCollator
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES
from limbeck.kinds.registry import KINDS


class TaskCollator:
    """Pads rows to the longest of their batch and names their labels as the model does.

    Padding stands on the right, whatever the tokenizer says: positions count from the left in many families, so that
    padding in front of a text would move them, and the scores of a row would depend on its batch.

    Args:
        model: The model, which decides whether batches have token types.
        tokenizer: The tokenizer, of which the padding token is used.
        kind: Name of the task's kind.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any, kind: str) -> None:
        self._kind = KINDS[kind]
        self._labelled = PadCollator(tokenizer.pad_token_id, labels=self._kind.facts.label)
        self._unlabelled = PadCollator(tokenizer.pad_token_id)
        # Some models have a single type of tokens, and some have no such input.
        has_segments = getattr(model.config, "type_vocab_size", 2) >= 2
        self._passes_segments = has_segments and TOKEN_TYPES in inspect.signature(model.forward).parameters

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch, with the labels of the model where the rows are labelled."""
        is_labelled = "labels" in rows[0]
        collate = self._labelled if is_labelled else self._unlabelled
        batch = collate(rows)
        if not self._passes_segments:
            batch.pop(TOKEN_TYPES, None)
        if is_labelled:
            # Models of some kinds take their labels under other names; they are renamed in place.
            self._kind.model_labels(batch)
        return batch
