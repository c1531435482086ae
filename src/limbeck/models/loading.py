"""Loading configurations and models: only from safetensors, without code from the Hub, with one-line errors.

A *head* is the part of a model on top of its Transformer that serves a task, such as `classification`; see `heads.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from transformers import PreTrainedConfig

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

_EXTRA_NUMBERS = 50_000_000
"""Numbers that the model of a configuration may have in any case, however few its weights hold."""
_MOST_TIMES_STORED = 4
"""Numbers that the model of a configuration may have besides, as a multiple of those that its weights hold."""


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


def model_without_weights(config: PreTrainedConfig, head: Head | None = None) -> PreTrainedModel:
    """Return a model whose tensors have shapes and no values, for work that reads its modules alone."""
    with torch.device("meta"), quiet():
        model: PreTrainedModel = model_class(config, head)._from_config(config)
    return model


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
    weights_dtype = as_dtype(dtype)
    config = load_config(name_or_path, revision)
    loader = model_class(config, head)
    options: dict[str, Any] = {}
    if not pooler:
        options = pooler_option(loader)
    model, info = load_class(loader, name_or_path, config, dtype=weights_dtype, revision=revision, **options)
    if info["mismatched_keys"]:
        key, stored_shape, needed_shape = sorted(info["mismatched_keys"])[0]
        raise ModelError(
            f"The weights of '{name_or_path}' do not fit its config.json: '{key}' is {list(stored_shape)} in the file "
            f"and {list(needed_shape)} by the configuration; copy or download the model again."
        )

    # A checkpoint may lack the pooler of a class that always has one. That does no harm, since nothing reads a pooler.
    lacks_pooler = any("pooler" in key for key in info["missing_keys"])
    missing = sorted(key for key in info["missing_keys"] if "pooler" not in key)
    if pooler and lacks_pooler and head is None:
        # A pooler at random values would be saved as if it were the model's, so the model is loaded without one.
        return load_model(name_or_path, dtype=dtype, revision=revision)
    if missing and head is not None:
        raise ModelError(
            f"'{name_or_path}' holds no {head} head ({missing[0]} is missing); give a model that has this head, or "
            "load it without a head."
        )
    if missing:
        raise ModelError(
            f"The weights of '{name_or_path}' lack {len(missing)} tensors of {type(model).__name__} (the first is "
            f"{missing[0]}); save the whole model again."
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
        if tensor.numel() == 0:
            continue
        # An infinite number is the smallest or the largest, and one that is undefined makes both undefined.
        smallest, largest = torch.aminmax(tensor)
        if torch.isfinite(smallest) and torch.isfinite(largest):
            continue
        way_out = "copy or download the model again"
        is_half_precision = tensor.dtype.itemsize < 4
        if is_half_precision:
            # Finite weights in the file may have overflowed in this format.
            way_out = "or too large for it, so use float32; else copy or download the model again"
        dtype_name = str(tensor.dtype).removeprefix("torch.")
        raise ModelError(
            f"The weights of '{name_or_path}' are damaged: '{key}' holds values that are not finite numbers in "
            f"{dtype_name}; {way_out}."
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
    """Load a model of a class; tensors that its checkpoint lacks, or that do not fit, are left at random values.

    The caller decides by the loading info which of these it refuses.

    Args:
        loader: The class.
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        config: The configuration.
        dtype: Type of the weights.
        revision: A branch, tag or commit on the Hub.
        **options: Keyword arguments of the class.

    Returns:
        The model, and the loading info of `transformers`: the names of missing tensors under `missing_keys`, and the
        names of tensors of another shape, with both shapes, under `mismatched_keys`.

    Raises:
        ModelError: for weights that are missing, pickled or damaged.
    """
    with quiet(), ExitStack() as open_files:
        tensors = _open_tensors(fetch_weights(name_or_path, revision), open_files)
        _check_extent(name_or_path, config, tensors)
        try:
            # The first argument is a name. Without one `transformers` looks for no adapter, no other weights and no way
            # of quantising.
            model_and_info: Any = loader.from_pretrained(
                None,
                config=config,
                state_dict=tensors,
                dtype=dtype,
                output_loading_info=True,
                # Tensors of another shape are reported in the loading info and raise no error.
                ignore_mismatched_sizes=True,
                trust_remote_code=False,
                **options,
            )
        except Exception as error:  # Each wrong value raises another class.
            raise ModelError(
                f"The model in '{name_or_path}' cannot be built or read: {shorten_error(error)}"
            ) from error
    model, info = model_and_info
    model.name_or_path = str(name_or_path)
    model.config.name_or_path = str(name_or_path)
    return model, info


def _open_tensors(files: Sequence[Path], open_files: ExitStack) -> dict[str, Any]:
    """Open files of weights, and return a slice of each tensor by its name.

    A slice is read when the model takes the tensor, so the files have to stay open until then.

    Args:
        files: The files, in safetensors.
        open_files: Closes them.
    """
    tensors: dict[str, Any] = {}
    for path in files:
        file = open_files.enter_context(safe_open(str(path), framework="pt"))
        for key in file.keys():  # noqa: SIM118 - no mapping
            tensors[key] = file.get_slice(key)
    return tensors


def _check_extent(name: str | Path, config: PreTrainedConfig, tensors: Mapping[str, Any]) -> None:
    """Refuse weights that hold far fewer numbers than the model which the configuration describes.

    That model would be made at random before its weights are read, and could take all memory.

    Args:
        name: The model, as the user named it.
        config: Its configuration.
        tensors: Slices of its weights.
    """
    stored = sum(math.prod(tensor.get_shape()) for tensor in tensors.values())

    # The numbers that the model has at least. A block has two attention maps of hidden x hidden, beside those for keys
    # and values, which may be narrow and are not counted. It has two feed-forward maps of hidden x ffn. The embeddings
    # come once.
    shape = shape_of(config)
    block_count = 1 if family_of(config).shared_blocks else shape.layers
    described = block_count * shape.hidden * (2 * shape.hidden + 2 * shape.ffn)
    described += shape.vocabulary * shape.embedding
    # `shape.positions` is the longest input, also for a family that computes positions and has no table of them. BERT
    # and the families that are built like it have such a table, and are recognised by a field that they have in common.
    # The refusal below allows several times the stored numbers, so it does not matter that this is not exact.
    is_like_bert = isinstance(getattr(config, "hidden_dropout_prob", None), float)
    if is_like_bert and shape.positions is not None:
        described += shape.positions * shape.hidden
    if described > _MOST_TIMES_STORED * stored + _EXTRA_NUMBERS:
        raise ModelError(
            f"The config.json of '{name}' describes a model with {described:,} parameters, but its weights hold "
            f"{stored:,}; copy or download the model again."
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
