"""`limbeck benchmark model`: size, latency and throughput of any models, side by side."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from transformers import BertConfig, PreTrainedConfig, PreTrainedModel

from limbeck.benchmark import measuring
from limbeck.benchmark.measuring import ForwardCost, forward_cost
from limbeck.benchmark.rows import Row, Value, describe_machine, tidy
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.timing import speedup, stopwatch, summarise, take_turns, tell_rounds
from limbeck.errors import RecipeError
from limbeck.evaluation import costs, published
from limbeck.models import blueprint, families, inference, locating, streams, students, taps
from limbeck.models.blueprint import names_shape
from limbeck.models.loading import load_config, load_model


def read_config(name: str, length: int) -> PreTrainedConfig:
    """Return the configuration of a saved model, or of a BERT of a named shape.

    Args:
        name: A shape (see `names_shape`), a folder, `package:NAME` or a Hub name.
        length: Tokens that a model of a named shape has to take; 512 at least.

    Raises:
        ModelError: see `parse_blueprint` and `load_config`.
    """
    if not names_shape(name):
        return load_config(name)
    return students.student_config(
        blueprint.parse_blueprint(name), BertConfig(max_position_embeddings=max(512, length))
    )


def load_or_make(name: str, *, length: int, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """Load a saved model, or make a random BERT of a named shape; in eval mode.

    Args:
        name: As in `read_config`.
        length: As in `read_config`.
        dtype: Of the weights.
        device: Where it goes.

    Raises:
        ModelError: see `load_model`.
    """
    if names_shape(name):
        model = students.build_student(read_config(name, length), seed=0).to(dtype)
    else:
        model = load_model(name, dtype=dtype)
    return model.to(device).eval()


def measure_size(name: str, model: PreTrainedModel) -> tuple[Row, ForwardCost]:
    """Measure the size of a loaded model; it is left as it was.

    Args:
        name: Its folder, package or Hub name.
        model: The model.

    Returns:
        Columns of a benchmark's row, and the products of a whole forward pass without a head. Megabytes (10⁶ bytes) are
        those of the weights' `"files"`, or of its `"tensors"` where the model has no files here.
    """
    shape, counts = families.shape_of(model.config), costs.count_parameters(model)
    located = None if names_shape(name) else locating.resolve_model(name)
    megabytes, source = costs.model_megabytes(
        model, located if located is not None and locating.is_local(located) else None
    )
    with taps.StreamTap(model, [streams.StreamKey("hidden", families.depth(model.config))]) as whole:
        forward = forward_cost(whole, shape)
    size: Row = {
        "shape": str(shape),
        "heads": shape.heads,
        "embedding_parameters": counts.embedding,
        "transformer_parameters": counts.transformer,
        "parameters": counts.total,
        "megabytes": megabytes,
        "megabytes_of": source,
    }
    return size, forward


def measure_models(
    names: Sequence[str],
    *,
    device: torch.device,
    batch_sizes: Sequence[int] = (1, 32),
    lengths: Sequence[int] = (128,),
    dtype: torch.dtype = torch.float32,
    seconds: float = 30.0,
    warmup: int = 2,
    report: Report = no_progress,
) -> list[Row]:
    """Measure the size of encoders, and time their forward passes alternately.

    All tokens are real: nothing is padded. The first model is what `speedup` refers to.

    Args:
        names: Saved models or shapes, as `load_or_make` takes them; the first is the one to compare with.
        device: Where.
        batch_sizes: Texts a pass.
        lengths: Tokens a text.
        dtype: Of weights and activations.
        seconds: For all timings together; at least five rounds are made of each batch size and length.
        warmup: Passes of each model that are not counted, at each batch size and length.
        report: Receives the progress.

    Returns:
        One row a model, batch size and length.

    Raises:
        RecipeError: if a length is beyond what a model can take, a batch cannot fit into memory, or a model is named
            twice.
        ModelError: if a model cannot be loaded.
    """
    if len(set(names)) < len(names):
        raise RecipeError(f"A model is named twice in {', '.join(names)}; name each once.")
    models: dict[str, PreTrainedModel] = {}
    for index, name in enumerate(names):
        if names_shape(name):
            measuring.check_length("--lengths", lengths)
        report(0.1 * index / len(names), f"loading {name}", Count(index, "models"))
        models[name] = load_or_make(name, length=max(lengths), dtype=dtype, device=device)
        limit = inference.longest_input(inference.encoder_of(models[name]))
        if limit is not None and max(lengths) > limit:
            raise RecipeError(
                f"--lengths {max(lengths)} is more than the {limit} tokens that '{name}' takes; use a smaller number."
            )
    sizes = {name: measure_size(name, model) for name, model in models.items()}
    shapes = [families.shape_of(model.config) for model in models.values()]
    vocabulary = min(shape.vocabulary for shape in shapes)
    generator = torch.Generator().manual_seed(0)  # All models share the token ids.
    cases = [(batch, length) for length in lengths for batch in batch_sizes]
    for batch, length in cases:
        tokens = batch * length
        needed = max(measuring.least_forward_bytes(shape, tokens, dtype.itemsize) for shape in shapes)
        measuring.check_memory(f"--batch-sizes {batch} and --lengths {length}", needed, device)
    rows: list[Row] = []
    for index, (batch, length) in enumerate(cases):
        input_ids = torch.randint(0, vocabulary, (batch, length), generator=generator).to(device)
        here = part_of(report, 0.1 + 0.9 * index / len(cases), 0.1 + 0.9 * (index + 1) / len(cases))
        inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
        runs = {
            name: stopwatch(partial(inference.encoder_of(model), **inputs), device) for name, model in models.items()
        }
        tell = tell_rounds(here, f"{batch} x {length} tokens")
        with torch.inference_mode():
            times = take_turns(runs, seconds=seconds / len(cases), warmup=warmup, tell=tell)
        for name, seen in times.items():
            spread, (size, forward) = summarise(seen), sizes[name]
            rows.append(
                {
                    "model": name,
                    **size,
                    "megaflops_per_token": forward.operations([length]) / length / 1e6,
                    "dtype": str(dtype).removeprefix("torch."),
                    "device_type": device.type,
                    "batch": batch,
                    "length": length,
                    "rounds": len(seen),
                    **spread,
                    "sentences_per_second": batch / spread["median_ms"] * 1000,
                    "tokens_per_second": batch * length / spread["median_ms"] * 1000,
                    "speedup": speedup(times[names[0]], seen),
                }
            )
    return [tidy(row) for row in rows]


# What models cost: parameters by place, disk, operations, latency and throughput, beside what the papers measured.


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
    """Measure models side by side; the first is what speedups refer to.

    Args:
        names: Folders, `package:NAME`, Hub names, or shapes such as `"6x384h6"`.
        device: Where.
        batch_sizes: Texts a pass; the papers measure 1, 16, 32 and 64 (MLKD-BERT, table 3).
        lengths: Tokens a text, all of them real.
        seconds: For all timings together.
        report: Receives the progress.

    Returns:
        `models` (sizes and operations), `timings` (the rows of `limbeck benchmark model`), `published` and `machine`.

    Raises:
        ModelError: if a model cannot be loaded.
        RecipeError: if a length is beyond what a model takes.
    """
    timings = measure_models(
        names, device=device, batch_sizes=batch_sizes, lengths=lengths, seconds=seconds, report=report
    )
    shapes = [families.shape_of(read_config(name, max(lengths))) for name in names]
    papers = published.matching_costs([(f"{shape.layers}x{shape.hidden}", shape.vocabulary) for shape in shapes])
    return {
        "models": [_size([row for row in timings if row["model"] == name]) for name in names],
        "timings": timings,
        "published": [cost.to_dict() for cost in papers],
        "machine": describe_machine(device.type),
    }


def _size(rows: Sequence[Mapping[str, Value]]) -> dict[str, Any]:
    """Return the size of one model from its rows; operations by length."""
    operations = {str(row["length"]): row["megaflops_per_token"] for row in rows}
    return {name: rows[0][name] for name in _SIZES} | {"megaflops_per_token": operations}
