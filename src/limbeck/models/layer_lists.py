"""What a configuration lists layer by layer, fitted to another number of layers."""

from collections.abc import Sequence
from typing import Any


def fit_layer_lists(values: dict[str, Any], depth: int, sources: Sequence[int]) -> None:
    """Fit what a configuration lists layer by layer, such as `layer_types`, to the layers of another model, in place.

    Args:
        values: The configuration as a dictionary.
        depth: Its layers; one whose upper blocks were dropped lists more than it has.
        sources: For each layer of the other model the layer here that it is like, counted from 0. Numbers beyond the
            list's end begin again at its start.
    """
    for key, value in values.items():
        if "layer" in key and isinstance(value, list) and len(value) >= depth:
            values[key] = [value[source % len(value)] for source in sources]
