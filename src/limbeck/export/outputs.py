"""What an exported model returns, by name: the same outputs in every format, and the module that makes them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.export.source import ExportHead
from limbeck.models.locating import SentencePooling
from limbeck.models.taps import pool

HIDDEN, SENTENCE, LOGITS = "last_hidden_state", "sentence_embedding", "logits"
ANSWER_ENDS = ("start_logits", "end_logits")
_TOKEN_HEADS = ("masked_lm", "token_classification")


def output_names(head: ExportHead | None, sentence: SentencePooling | None) -> tuple[str, ...]:
    """Return the names of the outputs, in order.

    Without a head `last_hidden_state` `[B, L, H]`, and `sentence_embedding` `[B, H]` where sentence vectors are made;
    else `logits`, of every token or of the text, or `start_logits` and `end_logits` `[B, L]`. They are the names that
    `transformers` and Optimum use.
    """
    if head is None:
        return (HIDDEN,) if sentence is None else (HIDDEN, SENTENCE)
    return ANSWER_ENDS if head == "question_answering" else (LOGITS,)


def is_per_token(name: str, head: ExportHead | None) -> bool:
    """Whether an output's first two axes are those of the tokens `[B, L]`."""
    return name in (HIDDEN, *ANSWER_ENDS) or (name == LOGITS and head in _TOKEN_HEADS)


def input_names(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Return the inputs that the tokenizer makes and the model reads: `input_ids`, `attention_mask`, then the rest."""
    read = inspect.signature(type(model).forward).parameters
    rest = [name for name in tokenizer.model_input_names if name in read]
    return tuple(dict.fromkeys(["input_ids", "attention_mask", *rest]))


class OutputModule(nn.Module):
    """A model that takes its inputs by place and returns its named outputs as a tuple, in float32.

    Args:
        model: The model.
        inputs: Names of its inputs, in order.
        head: Its head.
        sentence: How it makes sentence vectors, if it does.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        inputs: Sequence[str],
        head: ExportHead | None,
        sentence: SentencePooling | None,
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs = tuple(inputs)
        self.outputs = output_names(head, sentence)
        self.sentence = sentence

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the model.

        Args:
            *inputs: `[B, L]` each, in the order of `self.inputs`.

        Returns:
            One tensor for each of `self.outputs`.
        """
        named = dict(zip(self.inputs, inputs, strict=True))
        found = self.model(**named, return_dict=True)
        made = {name: found[name].float() for name in self.outputs if name != SENTENCE}
        if self.sentence is not None:
            vectors = pool(made[HIDDEN], named["attention_mask"].bool(), self.sentence.pooling)
            made[SENTENCE] = F.normalize(vectors, dim=-1) if self.sentence.normalize else vectors
        return tuple(made[name] for name in self.outputs)
