"""Costs of models: sizes, operations, latency and throughput, beside the costs that papers published.

The result is what `limbeck.core.studies.Costs` reads, and what the tables of costs are made of.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from limbeck.benchmark.model import measure_models, read_config
from limbeck.benchmark.rows import Value, describe_machine
from limbeck.core.progress import Report, no_progress
from limbeck.evaluation.protocols import published
from limbeck.models import families

# Columns of a row that are the same at every batch size and length.
_SIZES = ("model", "shape", "heads", "embedding_parameters", "transformer_parameters", "parameters", "megabytes",
          "megabytes_of")  # fmt: skip


def measure_costs(
    names: Sequence[str],
    *,
    device: torch.device,
    batch_sizes: Sequence[int] = (1, 16, 32, 64),
    lengths: Sequence[int] = (128,),
    seconds: float = 60.0,
    report: Report = no_progress,
) -> dict[str, Any]:
    """Measure models side by side; speedups refer to the first of them.

    Args:
        names: Folders, `package:NAME`, Hub names, or shapes such as `"6x384h6"`.
        device: The device that computes.
        batch_sizes: Numbers of texts in a forward pass; the papers measure 1, 16, 32 and 64 (MLKD-BERT, table 3).
        lengths: Lengths of the texts in tokens, without padding.
        seconds: Time for all timings together.
        report: Receives the progress.

    Returns:
        A mapping with `models` (sizes and operations of each), `timings` (the rows of `limbeck benchmark model`),
        `published` (costs of models of the same shapes, from papers) and `machine`.

    Raises:
        ModelError: if a model cannot be loaded.
        RecipeError: if a length is beyond what a model takes.
    """
    timings = measure_models(
        names, device=device, batch_sizes=batch_sizes, lengths=lengths, seconds=seconds, report=report
    )
    sizes = []
    shapes_and_vocabularies = []
    for name in names:
        sizes.append(_size([row for row in timings if row["model"] == name]))
        shape = families.shape_of(read_config(name, max(lengths)))
        # Papers name a shape by layers and width, `6x384`. The vocabulary tells multilingual models from others.
        shapes_and_vocabularies.append((f"{shape.layers}x{shape.hidden}", shape.vocabulary))
    published_costs = published.matching_costs(shapes_and_vocabularies)
    return {
        "models": sizes,
        "timings": timings,
        "published": [cost.to_dict() for cost in published_costs],
        "machine": describe_machine(device.type),
    }


def _size(rows: Sequence[Mapping[str, Value]]) -> dict[str, Any]:
    """Return the size of one model, and its operations a token by the length of the text.

    Args:
        rows: Rows of `limbeck benchmark model`, all of this model.
    """
    operations_by_length = {str(row["length"]): row["megaflops_per_token"] for row in rows}
    # Sizes are the same in all rows.
    size: dict[str, Any] = {column: rows[0][column] for column in _SIZES}
    size["megaflops_per_token"] = operations_by_length
    return size
