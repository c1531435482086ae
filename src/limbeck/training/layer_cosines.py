"""What each layer of the teacher contributes: how far it turns the vectors that it is given."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.corpus import Corpus, LabelledCorpus, PadCollator
from limbeck.models.families import depth
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap

_ROWS, _BATCH = 1024, 32


@torch.no_grad()
def measure_layer_cosines(
    teacher: PreTrainedModel, corpus: Corpus | LabelledCorpus, tokenizer: PreTrainedTokenizerBase
) -> tuple[float, ...]:
    """Measure the mean cosine between the input and the output of every layer.

    The mean is over the real tokens of up to 1,024 rows spread over the corpus; the paper takes a tenth of its corpus.

    Args:
        teacher: The whole teacher.
        corpus: Text to read.
        tokenizer: For padding.

    Returns:
        One cosine a layer, -1 to 1; the lower, the more the layer contributes.

    Source:
        ELM (arXiv 2012.06153) section 5.3.1, after Sajjad et al. 2020.
    """
    layers = depth(teacher.config)
    keys = [StreamKey("embedding", 0), *(StreamKey("hidden", layer) for layer in range(1, layers + 1))]
    collate = PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side)
    step = max(1, len(corpus.train) // _ROWS)
    chosen = range(0, min(len(corpus.train), step * _ROWS), step)
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    teacher.to(device or "cpu")
    sums, count = torch.zeros(layers, dtype=torch.float64), 0
    with StreamTap(teacher.eval(), keys) as tap:
        for start in range(0, len(chosen), _BATCH):
            batch = collate([corpus.train[index] for index in chosen[start : start + _BATCH]])
            streams = tap(**{name: tensor.to(device or "cpu") for name, tensor in batch.items()})
            valid = batch["attention_mask"].bool()
            for layer, (below, above) in enumerate(pairwise(keys)):
                cosines = F.cosine_similarity(streams[below].float(), streams[above].float(), dim=-1).cpu()
                sums[layer] += cosines[valid].sum().double()
            count += int(valid.sum())
    return tuple((sums / max(count, 1)).tolist())
