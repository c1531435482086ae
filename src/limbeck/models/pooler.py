"""The pooler of a model: the layer on the first token's hidden state that some Transformers, such as BERT, end with."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def pooler_option(loader: type[PreTrainedModel]) -> dict[str, bool]:
    """Return the keyword that leaves out the pooler, which nothing here reads, for classes that have it."""
    takes_option = "add_pooling_layer" in inspect.signature(loader.__init__).parameters
    return {"add_pooling_layer": False} if takes_option else {}
