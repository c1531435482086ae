"""Contribution of each layer of a model: the cosine between its input and its output.

A layer that hardly changes its input has a cosine near 1, and contributes little.

Axis letters: B batch, L tokens, N layers, n real tokens of a batch, H width.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core import devices
from limbeck.core.progress import Report, no_progress
from limbeck.corpus import Corpus, LabelledCorpus, PadCollator
from limbeck.errors import CorpusError
from limbeck.inspection.results import Contribution
from limbeck.inspection.subject import Subject, layer_keys, valid_vectors
from limbeck.inspection.texts import tokenise
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.inference import batches
from limbeck.models.taps import StreamTap

_MOST_ROWS = 1024
"""Rows of a corpus that are read to measure a model's layers."""
_BATCH = 32
"""Rows of a batch."""


@torch.no_grad()
def layer_cosines(model: PreTrainedModel, inputs: Iterable[Mapping[str, Tensor]]) -> tuple[tuple[float, ...], int]:
    """Measure the mean cosine between the input and the output of every layer, over the tokens of some batches.

    The outputs are those of `hidden_states` in transformers: in families with a final norm, the last output is the
    norm's.

    Args:
        model: A model; it is set to evaluation mode, and back to its own mode afterwards.
        inputs: Batches of `input_ids`, `attention_mask` and the other inputs of the model, each `[B, L]`, on the
            model's device.

    Returns:
        The mean cosine of each layer from 1 to N, -1 to 1, and the number of real tokens.

    Raises:
        CorpusError: if all tokens are padding.

    Source:
        ELM (arXiv 2012.06153) section 5.3.1, after Sajjad et al. 2020.
    """
    # The embedding output, then the outputs of the N layers.
    keys = layer_keys(model)
    sums = torch.zeros(len(keys) - 1, dtype=torch.float64)
    tokens = 0
    with evaluation_mode(model), StreamTap(model, keys) as tap:
        for batch in inputs:
            # [N + 1, n, H].
            vectors = valid_vectors(tap(**batch), keys, batch["attention_mask"].bool()).float()
            # The output of a layer is the input of the next layer. The cosines are [N, n].
            layer_inputs = vectors[:-1]
            layer_outputs = vectors[1:]
            cosines = F.cosine_similarity(layer_inputs, layer_outputs, dim=-1)
            sums += cosines.double().sum(1).cpu()
            tokens += vectors.shape[1]
    if not tokens:
        raise CorpusError("The texts have no tokens, so no layer can be measured; give texts with words.")
    return tuple((sums / tokens).tolist()), tokens


def measure_contribution(
    subject: Subject, texts: Sequence[str], *, length: int = 256, report: Report = no_progress
) -> Contribution:
    """Measure the contribution of the layers of a model on some texts, see `layer_cosines`.

    Args:
        subject: The model.
        texts: The texts to read, one or more; the paper reads a tenth of its corpus.
        length: Longest input in tokens, special tokens included; lowered to the limit of the model.
        report: Receives progress.

    Raises:
        CorpusError: if the texts hold no token.
    """
    rows = tokenise(subject.tokenizer, texts, limits=(length, subject.longest))
    title = f"Layers of {subject.name}"
    token_batches = batches(rows.ids, subject.tokenizer, device=subject.device, report=report, what=title)
    cosines, tokens = layer_cosines(subject.model, (batch.inputs for batch in token_batches))
    return Contribution(subject.name, cosines, tokens, rows.cut)


def measure_layer_cosines(
    teacher: PreTrainedModel, corpus: Corpus | LabelledCorpus, tokenizer: PreTrainedTokenizerBase
) -> tuple[float, ...]:
    """Measure the mean cosine between the input and the output of every layer, on the accelerator if there is one.

    The mean is over the real tokens of up to 1,024 rows spread over the corpus; the paper takes a tenth of its corpus.

    Args:
        teacher: The teacher with all its layers. It is moved to the accelerator, and stays there.
        corpus: Text to read.
        tokenizer: For padding.

    Returns:
        One cosine a layer, -1 to 1; the lower, the more the layer contributes.

    Source:
        ELM (arXiv 2012.06153) section 5.3.1, after Sajjad et al. 2020.
    """
    device = devices.choose_device("auto")
    teacher.to(device)
    collate = PadCollator(tokenizer.pad_token_id)
    means, _ = layer_cosines(teacher, spread_batches(corpus, collate, device))
    return means


def spread_batches(
    corpus: Corpus | LabelledCorpus,
    collate: PadCollator,
    device: torch.device,
    *,
    most_rows: int = _MOST_ROWS,
) -> Iterator[dict[str, Tensor]]:
    """Iterate over batches of rows that are spread over a corpus.

    Args:
        corpus: Text to read.
        collate: Makes batches of its rows.
        device: Where the batches go.
        most_rows: Most rows of all batches.
    """
    # Every nth row is read, so that the rows come from all parts of the corpus.
    step = max(1, len(corpus.train) // most_rows)
    indices = range(0, len(corpus.train), step)[:most_rows]
    for start in range(0, len(indices), _BATCH):
        batch = collate([corpus.train[index] for index in indices[start : start + _BATCH]])
        yield {name: tensor.to(device) for name, tensor in batch.items()}
