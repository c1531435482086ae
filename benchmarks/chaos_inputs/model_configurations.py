"""Configurations by mutation of real ones of every family: refused, or as good as the undamaged one for a step."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import COUNTED, EQUAL, SILENT, Trial
from tests.support.models import FAMILIES, tiny_config
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.models.heads import model_class
from limbeck.models.loading import load_config, load_model
from limbeck.models.quiet import quiet
from limbeck.models.trial_run import check_runs

STEERING = (
    "transformers_weights", "configuration_files", "quantization_config", "compression_config", "attn_implementation",
    "experts_implementation", "auto_map", "fusion_config", "per_layer_config", "distributed_config", "tokenizer_class",
    "_attn_implementation", "_attn_implementation_internal", "_name_or_path", "attribute_map", "sub_configs",
    "to_dict", "validate", "extra_files", "base_model_tp_plan", "return_dict", "output_attentions",
    "output_hidden_states", "chunk_size_feed_forward", "is_decoder", "add_cross_attention", "dtype", "torch_dtype",
)  # fmt: skip
"""Keys that lead `transformers` elsewhere, or replace parts of it."""


def _value(random: Random, before: Any) -> Any:
    """Another value than the one before, often of its kind."""
    if isinstance(before, bool):
        return not before
    if isinstance(before, int) and random.random() < 0.6:
        return random.choice(
            [before + 1, before - 1, before * 2, -before, 0, 10**6, 3 * 10**6, 10**9, 2**63, garbage.HUGE]
        )
    if isinstance(before, float) and random.random() < 0.6:
        return random.choice([0.0, 0.5, 1.0, 2.0, -0.1, 1e-30, 1e30, float("nan"), float("inf"), before / 2])
    return random.choice([
        None, True, 0, -1, 7, 0.25, "", garbage.word(random), garbage.outside(random), garbage.control_text(random), [],
        {}, [1], {"a": 1}, {"0": {"intermediate_size": 7}}, "someone/kernel@main:fast", "flash_attention_2", "float16",
        {"quant_method": "gptq", "bits": 4}, ["config.4.0.0.json"], float("nan"),
    ])  # fmt: skip


@cache
def _tiny(family: str) -> dict[str, Any]:
    with quiet():
        return json.loads(tiny_config(family, layers=2).to_json_string(use_diff=False))


def _run_a_step(folder: Path) -> Any:
    """Read the configuration, and train the model that it describes for a step, if it is small."""
    config = load_config(folder)
    check_runs(folder, config)
    with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"):
        if sum(p.numel() for p in model_class(config)(config).parameters()) > 20_000_000:
            return None
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: PreTrainedModel = model_class(config)(config)
    model.train()
    hidden: Tensor = model(input_ids=torch.arange(6).unsqueeze(0)).last_hidden_state
    hidden.square().mean().backward()
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    return hidden


def _finite(found: Any) -> str:
    if found is None:  # Too large to be run here, and built without memory.
        return COUNTED
    return COUNTED if isinstance(found, torch.Tensor) and bool(found.isfinite().all()) else SILENT


def _mutated(random: Random, folder: Path, changes: dict[str, Any], family: str) -> Trial:
    values = _tiny(family) | changes
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    what = f"{family} {', '.join(f'{key} = {str(value)[:40]!r}' for key, value in changes.items())}"
    return Trial(what, partial(_run_a_step, folder), (str(folder),), _finite)


def one_value_of_a_real_one(random: Random, scene: Scene, folder: Path) -> Trial:
    """A mutation of a field that the family has."""
    family = random.choice(FAMILIES)
    key = random.choice(sorted(_tiny(family).keys() - {"model_type", "transformers_version"}))
    return _mutated(random, folder, {key: _value(random, _tiny(family)[key])}, family)


def two_values(random: Random, scene: Scene, folder: Path) -> Trial:
    """Two fields at once, one of which may be another family's."""
    family, other = random.choice(FAMILIES), random.choice(FAMILIES)
    keys = random.sample(sorted(_tiny(family).keys() - {"model_type"}), 1)
    keys += random.sample(sorted(_tiny(other).keys() - {"model_type"}), 1)
    return _mutated(random, folder, {key: _value(random, (_tiny(family) | _tiny(other))[key]) for key in keys}, family)


def large_numbers(random: Random, scene: Scene, folder: Path) -> Trial:
    """Sizes in a file of a kilobyte that would take all memory."""
    family = random.choice(FAMILIES)
    keys = ["num_labels", *(key for key, value in _tiny(family).items() if type(value) is int)]
    value = random.choice([3 * 10**6, 2 * 10**7, 10**9, 10**12, 2**62, garbage.HUGE])
    return _mutated(random, folder, {random.choice(keys): value}, family)


def keys_that_lead_elsewhere(random: Random, scene: Scene, folder: Path) -> Trial:
    """A key that steers `transformers`; what is accepted gives the tensors and results of the undamaged model."""
    model = scene.copy_of(scene.teacher, folder)
    path = model / "config.json"
    key = random.choice(STEERING)
    value = _value(random, "")
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {key: value}), encoding="utf-8")
    torch.save({"word": torch.ones(2)}, model / "adapter_model.bin")
    batch = torch.arange(6).unsqueeze(0)

    def act() -> Tensor:
        with torch.no_grad():
            found: Tensor = load_model(model)(input_ids=batch).last_hidden_state
        return found

    def same(found: Any) -> str:
        with torch.no_grad():
            wanted = load_model(scene.teacher)(input_ids=batch).last_hidden_state
        return EQUAL if isinstance(found, torch.Tensor) and torch.equal(found, wanted) else SILENT

    return Trial(f"{key} = {str(value)[:40]!r}", act, (str(model),), same)


MAKERS = {
    maker.__name__: maker
    for maker in (one_value_of_a_real_one, two_values, large_numbers, keys_that_lead_elsewhere)
}  # fmt: skip
