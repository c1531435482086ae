"""Loading a configuration or a model: safetensors only, no remote code, no noise, one clear line when it
fails.
"""

from __future__ import annotations

import inspect
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
from transformers import MODEL_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from limbeck.errors import ModelError, suggestion
from limbeck.models.families import base_model, families, family_of, shape_of
from limbeck.models.heads import HEADS, Head, copy_head, has_head, head_class
from limbeck.models.locating import check_weights, hub_answers, is_local, resolve_model

# The numbers of a configuration from outside, before anything is built by them.


# Far beyond any encoder; with more, making the empty model alone would take all time and memory.
_MOST = {
    "layers": 1_000,
    "hidden": 1_000_000,
    "heads": 100_000,
    "ffn": 10_000_000,
    "vocabulary": 100_000_000,
    "positions": 100_000_000,
    "embedding": 1_000_000,
}
_COMMON = {"vocabulary": "vocab_size", "positions": "max_position_embeddings"}
"""What all families call alike."""


def check_numbers(name: str | Path, config: PreTrainedConfig) -> None:
    """Refuse a configuration whose numbers no model can have.

    Args:
        name: What the user calls the model, for the message.
        config: Its configuration.

    Raises:
        ModelError: for an unknown family; a number of layers, a width, a number of heads, tokens or positions that is
            no whole number from 1 up to a bound that no model reaches; or more heads than the width has room for.
    """
    try:
        fields = family_of(config).fields
    except ModelError as error:
        raise ModelError(f"The config.json of '{name}': {error}") from None
    for what, most in _MOST.items():
        field = _COMMON.get(what) or getattr(fields, what)
        value = None if field is None else getattr(config, field, None)
        if value is None and what in ("ffn", "positions", "embedding"):  # GPT-2's width may be unset, and so on.
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            shown = str(value) if not isinstance(value, int) or abs(value) < 10**30 else "so long a number"
            raise ModelError(
                f"The config.json of '{name}' says {field or what} = {shown[:80]}; a model has a whole number of 1 to "
                f"{most:,} there: copy or download it again."
            )
    if getattr(config, "head_dim", None) is None and getattr(config, fields.heads) > getattr(config, fields.hidden):
        raise ModelError(
            f"The config.json of '{name}' has {getattr(config, fields.heads)} heads in a width of "
            f"{getattr(config, fields.hidden)}; copy or download it again."
        )


_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
_LIKE_A_SHAPE = re.compile(r"\d+[^/\d]+\d+\w*")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the log lines of `transformers` and `huggingface_hub`, and the former's progress bars, inside the block.

    The bars of downloads stay as they are: whoever has them on waits for gigabytes. The previous settings are put back
    at the end. Errors still raise.
    """
    hub_logger = logging.getLogger("huggingface_hub")
    level, hub_level = transformers_logging.get_verbosity(), hub_logger.level
    bars, hub_bars = transformers_logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    transformers_logging.set_verbosity(logging.CRITICAL)
    hub_logger.setLevel(logging.CRITICAL)
    with warnings.catch_warnings(action="ignore"):  # That HF_HUB_DISABLE_PROGRESS_BARS has priority.
        transformers_logging.disable_progress_bar()
        if hub_bars:  # Switched off too by that.
            enable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        hub_logger.setLevel(hub_level)
        if bars and hub_bars:
            transformers_logging.enable_progress_bar()


def load_config(name_or_path: str | Path, revision: str | None = None) -> PreTrainedConfig:
    """Read a model's configuration; no weight is touched.

    Args:
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        revision: A branch, tag or commit on the Hub.

    Raises:
        ModelError: for a missing folder, package or `config.json`, an unreadable one, an unknown family, or a
            Hub name that cannot be reached.
    """
    resolved = resolve_model(name_or_path)
    with quiet():
        try:
            config = AutoConfig.from_pretrained(
                resolved,
                revision=revision or "main",
                trust_remote_code=False,
                local_files_only=_offline(resolved),
            )
        except Exception as error:  # A class of its own for every wrong value, and for every package that is missing.
            raise _config_error(name_or_path, resolved, error) from error
    check_numbers(name_or_path, config)
    return config


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
        dtype: What to hold the weights in, for example `"bfloat16"`; None is float32 whatever the file holds.
        revision: A branch, tag or commit on the Hub.
        head: None for the Transformer alone (without its pooler, where the class can leave it out),
            or the task whose head is loaded too: `"masked_lm"`, `"classification"`, `"regression"` or
            `"question_answering"`.
        pooler: Keep the pooler of a model without a head; one that the checkpoint lacks is at random values.

    Returns:
        The model. Every tensor of it comes from the checkpoint: nothing is left at random values.

    Raises:
        ModelError: for everything `load_config` refuses; weights that are missing, pickled, damaged or
            incomplete; a checkpoint without the head that is asked for; an unknown `dtype`.
    """
    wanted = as_dtype(dtype)
    config = load_config(name_or_path, revision)
    resolved = resolve_model(name_or_path)
    if is_local(resolved):
        check_weights(resolved)
    options: dict[str, Any] = {"dtype": wanted, "config": config, "revision": revision or "main"}
    if head is not None:
        loader = head_class(config, head)
    else:
        loader = model_class(config)
        options |= {} if pooler else pooler_option(loader)
    with quiet():
        try:
            model, info = loader.from_pretrained(
                resolved,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, with names that the library's error leaves out
                local_files_only=_offline(resolved),
                **options,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise _weights_error(name_or_path, resolved, head, error) from error
    _refuse_misfits(name_or_path, sorted(info["mismatched_keys"]))
    _refuse_missing(name_or_path, head, type(model).__name__, sorted(info["missing_keys"]))
    return model


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype:
    """Return the floating-point type that is named; None is float32.

    Raises:
        ModelError: for a name that is not one of float32, float16, bfloat16, float64.
    """
    if isinstance(dtype, torch.dtype):
        return dtype
    name = "float32" if dtype is None else dtype
    if name not in _DTYPES:
        raise ModelError(f"Unknown dtype '{name}'.{suggestion(name, _DTYPES)}")
    return _DTYPES[name]


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """Return the class of the Transformer without a head that a configuration describes."""
    found = MODEL_MAPPING[type(config)]
    return found[0] if isinstance(found, (tuple, list)) else found


def pooler_option(loader: type[PreTrainedModel]) -> dict[str, bool]:
    """Return the keyword that leaves out the pooler, for classes that have it: nothing here reads a
    pooler."""
    known = "add_pooling_layer" in inspect.signature(loader.__init__).parameters
    return {"add_pooling_layer": False} if known else {}


def _offline(resolved: str) -> bool:
    return not is_local(resolved) and not hub_answers()


def unreachable(name: str | Path) -> ModelError:
    """Return the error for a name that neither the disk nor the Hub gave."""
    shape = " A shape is written LAYERSxHIDDEN, such as 6x384." if _LIKE_A_SHAPE.fullmatch(str(name)) else ""
    return ModelError(
        f"Cannot get '{name}': it is no folder here, not in the Hub's cache and not given by the Hub; "
        "check the spelling and the connection (HF_HUB_OFFLINE, a token for gated models), or give a local "
        f"folder.{shape}"
    )


def one_line(error: Exception, limit: int = 200) -> str:
    """Return an error's text as one line of at most `limit` characters, or its type where it has none."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else f"{text[:limit]}…"


def _config_error(name: str | Path, resolved: str, error: Exception) -> ModelError:
    text = str(error)
    if "does not recognize this architecture" in text or "Should have a `model_type`" in text:
        return ModelError(f"The config.json of '{name}' has no known model_type.{suggestion('', families)}")
    if is_local(resolved):
        return ModelError(f"The config.json of '{name}' cannot be read: {one_line(error)}")
    return unreachable(name)


def _weights_error(name: str | Path, resolved: str, head: str | None, error: Exception) -> ModelError:
    text = str(error)
    if is_local(resolved):
        return ModelError(f"The model in '{name}' cannot be built or read: {one_line(error)}")
    if "safetensors" in text:
        return ModelError(
            f"'{name}' has no safetensors on the Hub; pickled weights are never loaded: convert them once."
        )
    return unreachable(name)


def _refuse_misfits(name: str | Path, misfits: list[tuple[str, Any, Any]]) -> None:
    if misfits:
        key, stored, wanted = misfits[0]
        raise ModelError(
            f"The weights of '{name}' do not fit its config.json: '{key}' is {list(stored)} in the file and "
            f"{list(wanted)} by the configuration; copy or download the model again."
        )


def _refuse_missing(name: str | Path, head: str | None, cls: str, missing: list[str]) -> None:
    # A pooler that the class insists on is harmless: no stream is read from it.
    missing = [key for key in missing if "pooler" not in key]
    if not missing:
        return
    if head is not None:
        raise ModelError(f"'{name}' holds no {head} head ({missing[0]} is missing); load it without one.")
    raise ModelError(
        f"The weights of '{name}' lack {len(missing)} tensors of {cls} (first {missing[0]}); save it whole again."
    )


# Starting a student from an earlier student's folder.


@torch.no_grad()
def load_checkpoint(student: PreTrainedModel, name_or_path: str | Path, *, revision: str | None = None) -> list[str]:
    """Set the student's weights from a saved model of the same shape, in place.

    A task head is set too where the checkpoint has the same, else it stays as it is. The shapes are compared before any
    weight is read.

    Args:
        student: With or without a head.
        name_or_path: The earlier student: a folder, `package:NAME`, or a Hub name.
        revision: A branch, tag or commit on the Hub.

    Returns:
        Names of the tensors that were set.

    Raises:
        ModelError: for everything `load_model` refuses, and a checkpoint of another shape.
    """
    ours, theirs = shape_of(student.config), shape_of(load_config(name_or_path, revision))
    if ours != theirs:
        raise ModelError(
            f"The checkpoint '{name_or_path}' is {theirs}, vocabulary {theirs.vocabulary}, positions "
            f"{theirs.positions}; the student is {ours}, vocabulary {ours.vocabulary}, positions "
            f"{ours.positions}: give the student that shape, or start it from the checkpoint's layers with "
            "it as the teacher."
        )
    source = _load_alike(student, name_or_path, revision)
    given = base_model(source).state_dict()
    target = base_model(student).state_dict()
    lacking = [name for name in target if name not in given or given[name].shape != target[name].shape]
    if lacking:
        raise ModelError(
            f"The checkpoint '{name_or_path}' has no tensor that fits '{lacking[0]}' ({len(lacking)} in "
            "all); derive the student's configuration from the one that was used for it."
        )
    for name, tensor in target.items():
        tensor.copy_(given[name])
    copied = copy_head(student, source) if base_model(source) is not source else []
    return [*target, *copied]


def _load_alike(student: PreTrainedModel, name_or_path: str | Path, revision: str | None) -> PreTrainedModel:
    """Load the checkpoint with the student's head where it was saved with one, else the Transformer alone."""
    config = load_config(name_or_path, revision)
    saved_alike = type(student).__name__ in (config.architectures or [])
    kinds = (head for head in HEADS if has_head(config, head) and type(student) is head_class(config, head))
    head = next(kinds, None) if saved_alike else None
    pooler = any(name.startswith("pooler.") for name in base_model(student).state_dict())
    return load_model(name_or_path, revision=revision, head=head, pooler=pooler)
