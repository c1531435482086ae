"""What each layer of a teacher contributes on a run's corpus."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.corpus import Corpus, LabelledCorpus, PadCollator
from limbeck.inspection import contribution

_ROWS, _BATCH = 1024, 32


def measure_layer_cosines(
    teacher: PreTrainedModel, corpus: Corpus | LabelledCorpus, tokenizer: PreTrainedTokenizerBase
) -> tuple[float, ...]:
    """Measure the mean cosine between the input and the output of every layer, on the accelerator if there is one.

    The mean is over the real tokens of up to 1,024 rows spread over the corpus; the paper takes a tenth of its corpus.

    Args:
        teacher: The whole teacher; it stays on the device.
        corpus: Text to read.
        tokenizer: For padding.

    Returns:
        One cosine a layer, -1 to 1; the lower, the more the layer contributes.

    Source:
        ELM (arXiv 2012.06153) section 5.3.1, after Sajjad et al. 2020.
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    device = accelerator or torch.device("cpu")
    teacher.to(device)
    return contribution.measure_layer_cosines(teacher, _batches(corpus, tokenizer, device)).means


def _batches(
    corpus: Corpus | LabelledCorpus, tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> Iterator[dict[str, Tensor]]:
    collate = PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side)
    step = max(1, len(corpus.train) // _ROWS)
    chosen = range(0, min(len(corpus.train), step * _ROWS), step)
    for start in range(0, len(chosen), _BATCH):
        batch = collate([corpus.train[index] for index in chosen[start : start + _BATCH]])
        yield {name: tensor.to(device) for name, tensor in batch.items()}
