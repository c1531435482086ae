"""`limbeck benchmark model`: size, latency and throughput of any models, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.benchmark.limits import check_length, check_memory, least_forward_bytes
from limbeck.benchmark.models import load_or_make, names_shape
from limbeck.benchmark.rows import Row, tidy
from limbeck.benchmark.sizes import measure_size
from limbeck.benchmark.timing import speedup, stopwatch, summarise, take_turns
from limbeck.core.progress import Count, Report, part_of, quietly
from limbeck.errors import RecipeError
from limbeck.evaluation.inference import encoder_of, longest_input


def measure_models(
    names: Sequence[str],
    *,
    device: torch.device,
    batch_sizes: Sequence[int] = (1, 32),
    lengths: Sequence[int] = (128,),
    dtype: torch.dtype = torch.float32,
    seconds: float = 30.0,
    warmup: int = 2,
    seed: int = 0,
    report: Report = quietly,
) -> list[Row]:
    """Measure the size of encoders, and time their forward passes in turns.

    All tokens are real: nothing is padded. The first model is what `speedup` refers to.

    Args:
        names: Saved models or shapes, as `load_or_make` takes them; the first is the one to compare with.
        device: Where.
        batch_sizes: Texts a pass.
        lengths: Tokens a text.
        dtype: Of weights and activations.
        seconds: For all timings together; at least five rounds are made of each batch size and length.
        warmup: Passes of each model that are not counted, at each batch size and length.
        seed: Of the token ids, which all models share.
        report: Is told how far it is.

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
            check_length("--lengths", lengths)
        report(0.1 * index / len(names), f"loading {name}", Count(index, "models"))
        models[name] = load_or_make(name, length=max(lengths), dtype=dtype, device=device)
        limit = longest_input(encoder_of(models[name]))
        if limit is not None and max(lengths) > limit:
            raise RecipeError(f"--lengths {max(lengths)} is longer than the {limit} tokens '{name}' takes; use less.")
    sizes = {name: measure_size(name, model) for name, model in models.items()}
    vocabulary = min(size.shape.vocabulary for size in sizes.values())
    generator = torch.Generator().manual_seed(seed)
    cases = [(batch, length) for length in lengths for batch in batch_sizes]
    for batch, length in cases:
        needed = max(least_forward_bytes(size.shape, batch * length, dtype.itemsize) for size in sizes.values())
        check_memory(f"--batch-sizes {batch} and --lengths {length}", needed, device)
    rows: list[Row] = []
    for index, (batch, length) in enumerate(cases):
        input_ids = torch.randint(0, vocabulary, (batch, length), generator=generator).to(device)
        here = part_of(report, 0.1 + 0.9 * index / len(cases), 0.1 + 0.9 * (index + 1) / len(cases))
        times = _time(models, input_ids, seconds / len(cases), warmup, here)
        for name, seen in times.items():
            spread = summarise(seen)
            rows.append(
                {
                    "model": name,
                    **sizes[name].columns(length),
                    "dtype": str(dtype).removeprefix("torch."),
                    "device_type": device.type,
                    "batch": batch,
                    "length": length,
                    "rounds": len(seen),
                    "median_ms": spread.median_ms,
                    "p10_ms": spread.p10_ms,
                    "p90_ms": spread.p90_ms,
                    "sentences_per_second": batch / spread.median_ms * 1000,
                    "tokens_per_second": batch * length / spread.median_ms * 1000,
                    "speedup": speedup(times[names[0]], seen),
                }
            )
    return [tidy(row) for row in rows]


def _time(
    models: dict[str, PreTrainedModel], input_ids: Tensor, seconds: float, warmup: int, report: Report
) -> dict[str, list[float]]:
    """Return the seconds of every pass of each model."""
    valid = torch.ones_like(input_ids)
    runs: dict[str, Callable[[], float]] = {
        name: stopwatch(partial(_forward, encoder_of(model), input_ids, valid), input_ids.device)
        for name, model in models.items()
    }
    what = f"{input_ids.shape[0]} x {input_ids.shape[1]} tokens"

    def tell(share: float, rounds: int) -> None:
        report(share, what, Count(rounds, "rounds"))

    with torch.inference_mode():
        return take_turns(runs, seconds=seconds, warmup=warmup, tell=tell)


def _forward(encoder: nn.Module, input_ids: Tensor, valid: Tensor) -> None:
    encoder(input_ids=input_ids, attention_mask=valid)
