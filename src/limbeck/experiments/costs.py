"""What models cost: parameters by place, disk, operations, latency and throughput, beside what the papers measured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import torch
from transformers import PreTrainedModel

from limbeck.benchmark.model import measure_models
from limbeck.benchmark.models import load_or_make, names_shape
from limbeck.benchmark.operations import forward_cost
from limbeck.benchmark.progress import Report, quietly
from limbeck.benchmark.rows import describe_machine
from limbeck.errors import ModelError
from limbeck.evaluation.model_size import count_parameters, tensors_megabytes, weights_megabytes
from limbeck.evaluation.published import matching_costs
from limbeck.models.families import depth, shape_of
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap


def measure_costs(
    names: Sequence[str],
    *,
    device: torch.device,
    batch_sizes: Sequence[int] = (1, 16, 32, 64),
    lengths: Sequence[int] = (128,),
    seconds: float = 60.0,
    report: Report = quietly,
) -> dict[str, Any]:
    """Measure models side by side; the first is what speedups refer to.

    Args:
        names: Folders, `package:NAME`, Hub names, or shapes such as `"6x384h6"`.
        device: Where.
        batch_sizes: Texts a pass; the papers measure 1, 16, 32 and 64 (MLKD-BERT, table 3).
        lengths: Tokens a text, all of them real.
        seconds: For all timings together.
        report: Is told how far it is.

    Returns:
        `models` (sizes and operations), `timings` (as `limbeck benchmark model` has them), `published` and `machine`.

    Raises:
        ModelError: if a model cannot be loaded.
        RecipeError: if a length is beyond what a model takes.
    """
    sizes, shapes = [], []
    for name in names:
        model = load_or_make(name, length=max(lengths), dtype=torch.float32, device=torch.device("cpu"))
        shape = shape_of(model.config)
        shapes.append((f"{shape.layers}x{shape.hidden}", shape.vocabulary))
        sizes.append(_size(name, model, lengths))
    timings = measure_models(
        names, device=device, batch_sizes=batch_sizes, lengths=lengths, seconds=seconds, report=report
    )
    return {
        "models": sizes,
        "timings": timings,
        "published": [asdict(cost) for cost in matching_costs(shapes)],
        "machine": describe_machine(device.type).to_dict(),
    }


def _size(name: str, model: PreTrainedModel, lengths: Sequence[int]) -> dict[str, Any]:
    counts, shape = count_parameters(model), shape_of(model.config)
    megabytes, source = tensors_megabytes(model), "tensors"
    located = None if names_shape(name) else resolve_model(name)
    if located is not None and is_local(located):
        with suppress(ModelError):  # `megabytes_of` says which it is.
            megabytes, source = weights_megabytes(located), "files"
    return {
        "model": name,
        "shape": str(shape),
        "heads": shape.heads,
        "embedding_parameters": counts.embedding,
        "transformer_parameters": counts.transformer,
        "parameters": counts.total,
        "megabytes": round(megabytes, 3),
        "megabytes_of": source,
        "megaflops_per_token": {str(length): _operations_per_token(model, length) / 1e6 for length in lengths},
    }


def _operations_per_token(model: PreTrainedModel, length: int) -> float:
    """Operations of a whole forward pass without a head, for every token of a text of `length` tokens."""
    whole = StreamTap(model, [StreamKey("hidden", depth(model.config))])
    return forward_cost(whole, shape_of(model.config)).operations([length]) / length
