"""A teaching of your own: sentence vectors that are read from a dictionary, by the tokens of each text.

    limbeck --plugin examples/own_teaching.py distill recipe.yaml

The recipe names it, and the model that the student starts from:

    teacher: {model: MODEL, teaching: {name: dictionary, path: vectors.json}}

`vectors.json` has a vector for each text: `{"101 7592 102": [0.1, 0.2, ...], ...}`.
"""

import json
from pathlib import Path

import torch

from limbeck.methods import Teaching, TeachingFacts, register_as_teaching
from limbeck.models.streams import StreamKey


@register_as_teaching("dictionary")
class Dictionary(Teaching):
    """Vectors of texts, by their token ids."""

    def __init__(self, path: str) -> None:
        self.vectors = json.loads(Path(path).read_text(encoding="utf-8"))
        width = len(next(iter(self.vectors.values())))
        self.facts = TeachingFacts("vectors of a dictionary", widths={"pooled": width})

    def read(self, batch, scored=None):
        """Return the vectors of the texts of a batch."""
        ids, mask = batch.teacher["input_ids"], batch.teacher["attention_mask"].bool()
        texts = [" ".join(map(str, row[real].tolist())) for row, real in zip(ids, mask, strict=True)]
        vectors = torch.tensor([self.vectors[text] for text in texts], device=ids.device)
        return {StreamKey("pooled", 0): vectors}
