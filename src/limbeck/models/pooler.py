"""The pooler of a model, which nothing here reads."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def pooler_option(loader: type[PreTrainedModel]) -> dict[str, bool]:
    """Return the keyword that leaves out the pooler, which nothing here reads, for classes that have it."""
    known = "add_pooling_layer" in inspect.signature(loader.__init__).parameters
    return {"add_pooling_layer": False} if known else {}
