"""Lists in a configuration with a value for each layer, fitted to another number of layers."""

from collections.abc import Sequence
from typing import Any


def fit_layer_lists(values: dict[str, Any], depth: int, sources: Sequence[int]) -> None:
    """Fit the lists with a value for each layer, such as `layer_types`, to the layers of another model, in place.

    Args:
        values: The configuration as a dictionary.
        depth: Its number of layers. A configuration whose upper blocks were dropped has longer lists.
        sources: For each layer of the other model the layer here whose value it gets, counted from 0. A number beyond
            the end of a list continues at its start.
    """
    # transformers has no mark for such lists; their names all have `layer` in them.
    for key, value in values.items():
        if "layer" in key and isinstance(value, list) and len(value) >= depth:
            values[key] = [value[source % len(value)] for source in sources]
