"""`limbeck benchmark model`: size, latency and throughput of any models, side by side.

A model is a saved one, or a *shape* such as `6x384h12` (layers x width, heads): then a BERT of that shape with random
weights is measured, whose speed is that of a trained one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import BertConfig, PreTrainedConfig, PreTrainedModel

from limbeck.benchmark import limits
from limbeck.benchmark.operations import ForwardCost, forward_cost
from limbeck.benchmark.rows import Row, tidy
from limbeck.core import timing
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.timing import speedup, summarise, tell_rounds
from limbeck.errors import RecipeError
from limbeck.evaluation import costs
from limbeck.evaluation.latency import time_passes, wall_times
from limbeck.models import blueprint, families, inference, locating, streams, students, taps
from limbeck.models.blueprint import names_shape
from limbeck.models.loading import load_config, load_model

_BERT_POSITIONS = 512
"""Positions of a BERT of a named shape, unless longer texts are measured."""
_LOADED = 0.1
"""Share of the progress that is reported when all models are loaded."""
_BUSY = (
    "the machine was busy, so the times are longer than on an idle one. A speedup compares neighbouring passes, so it "
    "is more reliable."
)
"""The note on times of a busy machine whose speedup is given."""


def read_config(name: str, length: int) -> PreTrainedConfig:
    """Return the configuration of a saved model, or of a BERT of a named shape.

    Args:
        name: A shape (see `names_shape`), a folder, `package:NAME` or a Hub name.
        length: Tokens of the longest text that a model of a named shape has to take; it has at least 512 positions.

    Raises:
        ModelError: see `parse_blueprint` and `load_config`.
    """
    if not names_shape(name):
        return load_config(name)
    bert = BertConfig(max_position_embeddings=max(_BERT_POSITIONS, length))
    return students.student_config(blueprint.parse_blueprint(name), bert)


def load_or_make(name: str, *, length: int, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """Load a saved model, or make a random BERT of a named shape, and set it to evaluation mode.

    Args:
        name: A model or a shape, as in `read_config`.
        length: Tokens of the longest text that a model of a named shape has to take, as in `read_config`.
        dtype: Number format of the weights.
        device: The device that the model is moved to.

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
        name: The shape, folder, package or Hub name of the model.
        model: The model.

    Returns:
        Columns of a benchmark's row, and the matrix products of a whole forward pass without a head. `megabytes` (10⁶
        bytes) is the size of the weights in files, and `megabytes_of` is then `"files"`; of a model without files on
        this machine it is the size in memory, and `megabytes_of` is `"tensors"`.
    """
    folder = None
    if not names_shape(name):
        located = locating.resolve_model(name)
        folder = located if locating.is_local(located) else None
    megabytes, source = costs.model_megabytes(model, folder)
    shape = families.shape_of(model.config)
    counts = costs.count_parameters(model)
    # A tap runs a model only as far as the streams that it reads require: the output of the last layer requires all.
    last_output = streams.StreamKey("hidden", families.depth(model.config))
    with taps.StreamTap(model, [last_output]) as tap:
        forward = forward_cost(tap, shape)
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


class _TimedCase(NamedTuple):
    """The times of all models on texts of one number and one length.

    Attributes:
        batch: Number of the texts.
        length: Tokens of each text.
        times: The seconds of each pass, by model.
        spreads: Median and percentiles of these times, by model; see `timing.summarise`.
        demand: The demand for each core while they were timed, see `timing.CoreDemand`; None where another device than
            a CPU computed.
    """

    batch: int
    length: int
    times: dict[str, list[float]]
    spreads: dict[str, dict[str, float]]
    demand: float | None

    def is_busy_during(self, name: str) -> bool:
        """Whether the machine was busy while a model was timed."""
        spread = self.spreads[name]
        return timing.is_unsteady(spread["p10_ms"], spread["p90_ms"], demand=self.demand)


class _Compared(NamedTuple):
    """The speed of a model beside the first.

    Attributes:
        speedup: How many times as fast it is; None where the shapes of the two cannot give it.
        note: Why there is no speedup, or that the machine was busy; empty where nothing is to be said.
    """

    speedup: float | None
    note: str


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

    The batches have no padding. `speedup` compares each model with the first. It is None, and `note` says why, where
    the shapes of the two models cannot give it, because the machine was busy or the rounds were few. `note` also says
    where a machine was busy whose speedups may be right.

    Args:
        names: Saved models or shapes, as `load_or_make` takes them; the others are compared with the first.
        device: The device that computes.
        batch_sizes: Numbers of texts in a forward pass.
        lengths: Lengths of the texts in tokens.
        dtype: Number format of weights and activations.
        seconds: Time for all timings together; at least five rounds are made of each batch size and length.
        warmup: Passes of each model that are not counted, at each batch size and length.
        report: Receives the progress.

    Returns:
        One row for each model, batch size and length.

    Raises:
        RecipeError: if a length is beyond what a model can take, a batch cannot fit into memory, or a model is named
            twice.
        ModelError: if a model cannot be loaded.
    """
    if len(set(names)) < len(names):
        raise RecipeError(f"A model is named twice in {', '.join(names)}; name each model once.")
    models: dict[str, PreTrainedModel] = {}
    for index, name in enumerate(names):
        report(_LOADED * index / len(names), f"loading {name}", Count(index, "models"))
        models[name] = _load(name, lengths, dtype, device)
    sizes = {name: measure_size(name, model) for name, model in models.items()}
    encoders = {name: inference.encoder_of(model) for name, model in models.items()}
    cases = [(batch, length) for length in lengths for batch in batch_sizes]
    _check_memory(models, cases, dtype, device)

    # The work of each model beside that of the first. Ids of 0 are in every vocabulary.
    shortest_text = torch.zeros((1, min(lengths)), dtype=torch.long, device=device)
    work_ratios = {name: _work_ratios(encoders[names[0]], encoders[name], shortest_text) for name in names}

    # All models read the same random token ids, which have to be in the smallest vocabulary.
    vocabulary = min(families.shape_of(model.config).vocabulary for model in models.values())
    generator = torch.Generator().manual_seed(0)
    share = (1 - _LOADED) / len(cases)
    rows: list[Row] = []
    for index, (batch, length) in enumerate(cases):
        progress = part_of(report, _LOADED + share * index, _LOADED + share * (index + 1))
        token_ids = torch.randint(0, vocabulary, (batch, length), generator=generator).to(device)
        case = _time_case(encoders, token_ids, seconds=seconds / len(cases), warmup=warmup, report=progress)
        for name, times in case.times.items():
            size, forward = sizes[name]
            spread = case.spreads[name]
            compared = _compare(case, names[0], name, work_ratios[name])
            note = None
            if compared.note:
                note = f"at {batch} x {length} tokens {compared.note}"
            row: Row = {
                "model": name,
                **size,
                "megaflops_per_token": forward.operations([length]) / length / 1e6,
                "dtype": str(dtype).removeprefix("torch."),
                "device_type": device.type,
                "batch": batch,
                "length": length,
                "rounds": len(times),
                **spread,
                "sentences_per_second": batch / spread["median_ms"] * 1000,
                "tokens_per_second": batch * length / spread["median_ms"] * 1000,
                "speedup": compared.speedup,
                "note": note,
            }
            rows.append(tidy(row))
    return rows


@dataclass(frozen=True)
class _WorkRatios:
    """What the shapes of two models give at most.

    Args:
        faster: How many times as fast as the first model the other one can be; None where it is not known.
        slower: How many times as slow; None likewise.
    """

    faster: float | None
    slower: float | None


def _work_ratios(first: nn.Module, other: nn.Module, token_ids: Tensor) -> _WorkRatios:
    """Compare the work of two encoders by their shapes, both ways; the ids are `[B, L]` int64."""
    faster = costs.work_ratio(first, other, token_ids)
    slower = costs.work_ratio(other, first, token_ids)
    return _WorkRatios(faster, slower)


def _note_on_shapes(ratio: float, work_ratios: _WorkRatios, rounds: int, *, is_busy: bool) -> str:
    """Return the reason for which a speedup is left out, as the shapes cannot give it; empty where they can.

    Args:
        ratio: How many times as fast as the first model the other one was.
        work_ratios: Of the two models.
        rounds: The number of rounds.
        is_busy: Whether the machine was busy while the two were timed; see `timing.is_unsteady`.
    """
    factor = ratio
    most = work_ratios.faster
    word = "fast"
    if ratio < 1:
        factor = 1 / ratio
        most = work_ratios.slower
        word = "slow"
    if not timing.is_beyond_shapes(factor, most, rounds=rounds, is_busy=is_busy):
        return ""
    return (
        f"it was {factor:.3g}x as {word} as the first model, but the shapes of the two give about {most:.3g}x at most. "
        "The machine was busy, or the rounds were few, so no speedup is given; measure again on an idle machine, with "
        "more --seconds."
    )


def _time_case(
    encoders: Mapping[str, nn.Module], token_ids: Tensor, *, seconds: float, warmup: int, report: Report
) -> _TimedCase:
    """Time the passes of all models in turns, on the same texts.

    Args:
        encoders: The models by name.
        token_ids: The texts, `[batch, length]`.
        seconds: Time for all passes together.
        warmup: Passes of each model that are not counted.
        report: Receives the progress.
    """
    batch, length = token_ids.shape
    core_demand = timing.CoreDemand(torch.get_num_threads())
    passes = time_passes(
        encoders,
        token_ids,
        seconds=seconds,
        warmup=warmup,
        tell=tell_rounds(report, f"{batch} x {length} tokens"),
    )
    # Programs on the CPU hardly slow down another device.
    demand = None
    if token_ids.device.type == "cpu":
        demand = core_demand.for_each_core()
    times = {name: wall_times(passes_of_model) for name, passes_of_model in passes.items()}
    spreads = {name: summarise(times_of_model) for name, times_of_model in times.items()}
    return _TimedCase(batch, length, times, spreads, demand)


def _compare(case: _TimedCase, first: str, name: str, work_ratios: _WorkRatios) -> _Compared:
    """Compare the times of a model with those of the first.

    Args:
        case: The times.
        first: The name of the first model.
        name: The name of the model, which may be the first itself.
        work_ratios: The work of the first model beside that of this one.
    """
    is_busy = case.is_busy_during(first) or case.is_busy_during(name)
    times = case.times[name]
    ratio = speedup(case.times[first], times)
    reason_against = _note_on_shapes(ratio, work_ratios, len(times), is_busy=is_busy)
    if reason_against:
        return _Compared(None, reason_against)
    if is_busy:
        return _Compared(ratio, _BUSY)
    return _Compared(ratio, "")


def _load(name: str, lengths: Sequence[int], dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """Load a model, and refuse lengths that it cannot take.

    Raises:
        RecipeError: for a length that is greater than the model's limit.
    """
    # A model of a named shape is made for any length; the general limit is checked before it is made.
    if names_shape(name):
        limits.check_length("--lengths", lengths)
    longest = max(lengths)
    model = load_or_make(name, length=longest, dtype=dtype, device=device)
    limit = inference.longest_input(inference.encoder_of(model))
    if limit is not None and longest > limit:
        raise RecipeError(
            f"--lengths {longest} is more than the {limit} tokens that '{name}' takes; use a smaller number."
        )
    return model


def _check_memory(
    models: Mapping[str, PreTrainedModel], cases: Sequence[tuple[int, int]], dtype: torch.dtype, device: torch.device
) -> None:
    """Refuse batches that cannot fit into memory for at least one of the models.

    Args:
        models: The models by name.
        cases: (batch size, length) of each batch.
        dtype: Number format of the activations.
        device: The device that computes.

    Raises:
        RecipeError: for the first batch that is too large.
    """
    shapes = [families.shape_of(model.config) for model in models.values()]
    for batch, length in cases:
        least_bytes = max(limits.least_forward_bytes(shape, batch * length, dtype.itemsize) for shape in shapes)
        limits.check_memory(f"--batch-sizes {batch} and --lengths {length}", least_bytes, device)
