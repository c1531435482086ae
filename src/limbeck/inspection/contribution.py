"""What each layer contributes: how far it turns the vectors that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from limbeck.core.progress import Report, quietly
from limbeck.errors import CorpusError
from limbeck.evaluation.inference import evaluation_mode
from limbeck.inspection.batches import batches, shortest_limit, tokenise
from limbeck.inspection.subject import Subject, layer_keys
from limbeck.models.taps import StreamTap


@dataclass(frozen=True)
class LayerCosines:
    """How far the layers of a model turn their inputs.

    Attributes:
        means: For layers 1 to N the mean cosine between input and output, -1 to 1; the lower, the more the layer
            changes.
        tokens: Tokens that the means are over.
    """

    means: tuple[float, ...]
    tokens: int


@dataclass(frozen=True)
class Contribution:
    """The layers of one model.

    Attributes:
        name: The model.
        cosines: As `LayerCosines.means`.
        tokens: Tokens that the means are over.
        cut: Texts that were cut to the longest length.
    """

    name: str
    cosines: tuple[float, ...]
    tokens: int
    cut: int

    @property
    def ranking(self) -> tuple[int, ...]:
        """The layers, from the one that changes its input most to the one that changes it least."""
        return tuple(sorted(range(1, len(self.cosines) + 1), key=lambda layer: (self.cosines[layer - 1], layer)))


def sum_layer_cosines(outputs: Sequence[Tensor], valid: Tensor) -> Tensor:
    """Sum the cosines between the input and the output of every layer over the valid tokens.

    Args:
        outputs: The outputs of layers 0 to N, each `[B, L, width]`.
        valid: Bool `[B, L]`.

    Returns:
        `[N]`, float64, on the CPU.
    """
    cosines = [F.cosine_similarity(below.float(), above.float(), dim=-1) for below, above in pairwise(outputs)]
    # Not a product with the mask: a non-finite padding position must not leak.
    return torch.stack([cosine.cpu()[valid.cpu()].double().sum() for cosine in cosines])


@torch.no_grad()
def measure_layer_cosines(model: PreTrainedModel, inputs: Iterable[Mapping[str, Tensor]]) -> LayerCosines:
    """Measure the mean cosine between the input and the output of every layer, over the tokens of some batches.

    The outputs are as `hidden_states` has them: the last one after the final norm, in families that have one.

    Args:
        model: Its mode is put back afterwards.
        inputs: `input_ids`, `attention_mask` and what else the model takes, each `[B, L]`, on its device.

    Raises:
        CorpusError: if no token is real.

    Source:
        ELM (arXiv 2012.06153) section 5.3.1, after Sajjad et al. 2020.
    """
    keys = layer_keys(model)
    sums, tokens = torch.zeros(len(keys) - 1, dtype=torch.float64), 0
    with evaluation_mode(model), StreamTap(model, keys) as tap:
        for batch in inputs:
            streams, valid = tap(**batch), batch["attention_mask"].bool()
            sums += sum_layer_cosines([streams[key] for key in keys], valid)
            tokens += int(valid.sum())
    if not tokens:
        raise CorpusError("There is no token to measure layers on.")
    return LayerCosines(tuple((sums / tokens).tolist()), tokens)


def measure_contribution(
    subject: Subject, texts: Sequence[str], *, length: int = 256, report: Report = quietly
) -> Contribution:
    """Measure what the layers of a model contribute on some texts, see `measure_layer_cosines`.

    Args:
        subject: The model.
        texts: Any number; the paper reads a tenth of its corpus.
        length: Longest input in tokens, special tokens included; lowered to what the model can take.
        report: Is told how far it is.

    Raises:
        CorpusError: if the texts hold no token.
    """
    rows = tokenise(subject.tokenizer, texts, shortest_limit(length, subject.longest))
    read = batches(rows.ids, subject.tokenizer, device=subject.device, report=report, what=f"Layers of {subject.name}")
    found = measure_layer_cosines(subject.model, (batch.inputs for batch in read))
    return Contribution(subject.name, found.means, found.tokens, rows.cut)
