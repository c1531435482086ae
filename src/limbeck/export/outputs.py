"""The named outputs of a model that is exported, by which the export is compared with it.

The *head* of a model serves a task, such as classification; a model without one may make sentence vectors instead.
"""

import inspect

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.kinds import kind_of
from limbeck.export.batches import Batch, Runner
from limbeck.models.heads import Head
from limbeck.models.loaded import LoadedModel
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentences import SentencePooling

HIDDEN = "last_hidden_state"
SENTENCE = "sentence_embedding"


class OutputModule(nn.Module):
    """A model as a module that takes its inputs by place and returns its named outputs as a tuple, in float32.

    Args:
        source: The loaded model.

    Attributes:
        inputs: Names of the inputs, in order.
        outputs: Names of the outputs, in order.
    """

    def __init__(self, source: LoadedModel) -> None:
        super().__init__()
        self.model = source.model
        self.head = source.head
        self.sentence = None if source.sentence is None else SentenceHead(source.sentence)
        self.inputs = input_names(source.model, source.tokenizer)
        self.outputs = output_names(source.head, source.sentence)
        self.eval()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the model.

        Args:
            *inputs: `[B, L]` each, in the order of `self.inputs`.

        Returns:
            One tensor for each of `self.outputs`.
        """
        named_inputs = dict(zip(self.inputs, inputs, strict=True))
        model_output = self.model(**named_inputs, return_dict=True)
        # Sentence vectors are the only output that the model itself does not return.
        tensors = {name: model_output[name].float() for name in self.outputs if name != SENTENCE}
        if self.sentence is not None:
            tensors[SENTENCE] = self.sentence(tensors[HIDDEN], named_inputs["attention_mask"].bool())
        return tuple(tensors[name] for name in self.outputs)


def module_runner(module: OutputModule) -> Runner:
    """Return a function that runs a module on batches."""

    def run(batch: Batch) -> dict[str, Tensor]:
        inputs = [batch.inputs[name] for name in module.inputs]
        with torch.inference_mode():
            outputs = module(*inputs)
        return dict(zip(module.outputs, outputs, strict=True))

    return run


def input_names(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Return the names of the inputs: `input_ids`, `attention_mask`, and others that tokenizer and model both know."""
    parameters = inspect.signature(type(model).forward).parameters
    names = ["input_ids", "attention_mask"]
    for name in tokenizer.model_input_names:
        if name in parameters and name not in names:
            names.append(name)
    return tuple(names)


def output_names(head: Head | None, sentence: SentencePooling | None) -> tuple[str, ...]:
    """Return the names of the outputs, in order, as `transformers` and Optimum call them.

    A model without a head gives `last_hidden_state` `[B, L, H]` and, where it makes sentence vectors,
    `sentence_embedding` `[B, width]`. One with a head gives its scores alone: `logits`, of every token or of the text,
    or `start_logits` and `end_logits` `[B, L]`.
    """
    if head is not None:
        return kind_of(head).outputs
    if sentence is None:
        return (HIDDEN,)
    return (HIDDEN, SENTENCE)


def is_per_token(name: str, head: Head | None) -> bool:
    """Whether an output has a value for each token: its first two axes are `[B, L]`."""
    if name == HIDDEN:
        return True
    if name == SENTENCE:
        return False
    return head == "masked_lm" or kind_of(head).of_tokens
