"""Loading configurations, models and tokenizers: safetensors only, no remote code, one clear line when it fails."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from transformers import (
    PreTrainedConfig,
)

from limbeck.errors import ModelError, shorten_error, suggestion
from limbeck.models.configuration import DTYPES, read_config
from limbeck.models.families import family_of, shape_of
from limbeck.models.heads import Head, model_class
from limbeck.models.hub_files import fetch
from limbeck.models.pooler import pooler_option
from limbeck.models.quiet import quiet
from limbeck.models.weight_files import fetch_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Numbers that a configuration may describe beyond those that its weights hold: what is drawn anew, rounded up.
_FEW_NUMBERS = 50_000_000


def load_config(name_or_path: str | Path, revision: str | None = None) -> PreTrainedConfig:
    """Read a model's configuration; no weight is touched.

    Args:
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        revision: A branch, tag or commit on the Hub.

    Raises:
        ModelError: for a missing folder, package or `config.json`, an unreadable one, an unknown family, or a
            Hub name that cannot be reached.
    """
    return read_config(name_or_path, fetch_quietly(name_or_path, revision, ("config.json",)))


def load_model(
    name_or_path: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    head: Head | None = None,
    pooler: bool = False,
) -> PreTrainedModel:
    """Load a model, in eval mode, on the CPU.

    Args:
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        dtype: Type of the weights, for example `"bfloat16"`; None is float32 whatever the file holds.
        revision: A branch, tag or commit on the Hub.
        head: None for the Transformer alone (without its pooler, where the class can leave it out),
            or the task whose head is loaded too: `"masked_lm"`, `"classification"`, `"regression"`,
            `"question_answering"` or `"token_classification"`.
        pooler: Keep the pooler of a model without a head, where its checkpoint has one.

    Returns:
        The model. Every tensor of it comes from the checkpoint: nothing is left at random values.

    Raises:
        ModelError: for everything `load_config` refuses; weights that are missing, pickled, damaged or
            incomplete; a checkpoint without the head that is asked for; an unknown `dtype`.
    """
    wanted = as_dtype(dtype)
    config = load_config(name_or_path, revision)
    loader = model_class(config, head)
    options: dict[str, Any] = {} if pooler else pooler_option(loader)
    model, info = load_class(loader, name_or_path, config, dtype=wanted, revision=revision, **options)
    if info["mismatched_keys"]:
        key, stored, needed = sorted(info["mismatched_keys"])[0]
        raise ModelError(
            f"The weights of '{name_or_path}' do not fit its config.json: '{key}' is {list(stored)} in the file and "
            f"{list(needed)} by the configuration; copy or download the model again."
        )
    # A pooler that the class insists on is harmless: no stream is read from it.
    missing = sorted(key for key in info["missing_keys"] if "pooler" not in key)
    if pooler and head is None and len(missing) < len(info["missing_keys"]):
        return load_model(name_or_path, dtype=dtype, revision=revision)
    if missing:
        if head is not None:
            raise ModelError(f"'{name_or_path}' holds no {head} head ({missing[0]} is missing); load it without one.")
        raise ModelError(
            f"The weights of '{name_or_path}' lack {len(missing)} tensors of {type(model).__name__} (first "
            f"{missing[0]}); save it whole again."
        )
    check_finite(name_or_path, model)
    return model


def check_finite(name_or_path: str | Path, model: PreTrainedModel) -> None:
    """Refuse a model with a weight that is infinite or no number.

    Args:
        name_or_path: Where it was loaded from, for the message.
        model: The model as it was loaded.

    Raises:
        ModelError: for the first such tensor.
    """
    for key, tensor in model.named_parameters():
        if tensor.numel() and not all(torch.isfinite(end) for end in torch.aminmax(tensor)):
            half = "or too large for it, so use float32; else " if tensor.dtype.itemsize < 4 else ""
            raise ModelError(
                f"The weights of '{name_or_path}' are damaged: '{key}' holds values that are not finite numbers in "
                f"{str(tensor.dtype).removeprefix('torch.')}; {half}copy or download the model again."
            )


def load_class(
    loader: type[PreTrainedModel],
    name_or_path: str | Path,
    config: PreTrainedConfig,
    *,
    dtype: torch.dtype = torch.float32,
    revision: str | None = None,
    **options: Any,
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load a model of a class, with everything that its checkpoint lacks or that does not fit at random values.

    Args:
        loader: The class.
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        config: The configuration.
        dtype: Type of the weights.
        revision: A branch, tag or commit on the Hub.
        **options: Keyword arguments of the class.

    Returns:
        The model, and the loading info of `transformers`: missing and mismatched keys.

    Raises:
        ModelError: for weights that are missing, pickled or damaged.
    """
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True, "trust_remote_code": False}
    with quiet(), ExitStack() as opened:
        tensors: dict[str, Any] = {}
        for file in fetch_weights(name_or_path, revision):
            pointer = opened.enter_context(safe_open(str(file), framework="pt"))
            tensors |= {key: pointer.get_slice(key) for key in pointer.keys()}  # noqa: SIM118 - no mapping
        _check_extent(name_or_path, config, tensors)
        try:
            # Without a name `transformers` looks for no adapter, no other weights and no way of quantising.
            found: Any = loader.from_pretrained(None, config=config, state_dict=tensors, dtype=dtype, **options)
        except Exception as error:  # Each wrong value has its own kind.
            raise ModelError(
                f"The model in '{name_or_path}' cannot be built or read: {shorten_error(error)}"
            ) from error
    model, info = found
    model.name_or_path = model.config.name_or_path = str(name_or_path)
    return model, info


def _check_extent(name: str | Path, config: PreTrainedConfig, tensors: Mapping[str, Any]) -> None:
    """Refuse weights that are far smaller than the model of the configuration, which would be made at random first."""
    stored = sum(math.prod(tensor.get_shape()) for tensor in tensors.values())
    shape = shape_of(config)
    blocks = 1 if family_of(config).shared_blocks else shape.layers
    described = blocks * shape.hidden * (2 * shape.hidden + 2 * shape.ffn) + shape.vocabulary * shape.embedding
    described += (shape.positions or 0) * shape.hidden * isinstance(getattr(config, "hidden_dropout_prob", None), float)
    if described > 4 * stored + _FEW_NUMBERS:
        raise ModelError(
            f"The config.json of '{name}' describes a model of {described:,} numbers, but its weights hold {stored:,}; "
            "copy or download the model again."
        )


def fetch_quietly(name: str | Path, revision: str | None, files: Sequence[str]) -> Path:
    """Fetch files of a model without progress bars and logs, see `fetch`."""
    with quiet():
        return fetch(name, revision, files)


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype:
    """Return the floating-point type that is named; None is float32.

    Raises:
        ModelError: for a name that is not one of float32, float16, bfloat16, float64.
    """
    if isinstance(dtype, torch.dtype):
        return dtype
    name = "float32" if dtype is None else dtype
    if name not in DTYPES:
        raise ModelError(f"Unknown dtype '{name}'.{suggestion(name, DTYPES)}")
    return DTYPES[name]
