"""The files of a model's weights: safetensors, checked before they are loaded, and pickles, which never are loaded."""

import json
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from limbeck.errors import ModelError
from limbeck.models.folder_files import folder_inside
from limbeck.models.hub_files import check_fetched, check_there, fetch
from limbeck.models.locating import is_local, resolve_model

SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
"""Patterns of configuration and tokenizer files."""
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_OTHER_FRAMEWORKS = ("*.h5", "*.msgpack", "*.onnx", "*.gguf")
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLE = "pytorch_model.bin"
_PICKLE_INDEX = "pytorch_model.bin.index.json"


def fetch_weights(name: str | Path, revision: str | None) -> list[Path]:
    """Return the files of a model's weights, fetched where they are on the Hub.

    Raises:
        ModelError: see `fetch` and `check_weights`.
    """
    folder = fetch(name, revision, ("config.json", _WEIGHTS, _INDEX, "adapter_config.json"))
    if not is_local(resolve_model(name)) and not (folder / _WEIGHTS).is_file():
        if not weight_names(folder):
            check_fetched(name)
        folder = fetch(name, revision, weight_names(folder) or ("config.json",))
    return check_weights(folder, name)


def check_weights(folder: str | Path, name: str | Path | None = None) -> list[Path]:
    """Refuse a folder whose weights are missing, pickled, incomplete or damaged, or an adapter.

    Reads only the headers of the safetensors files.

    Args:
        folder: The folder.
        name: The model, as the user named it; None is the folder.

    Returns:
        The files of the weights: `model.safetensors`, or those that its index names.

    Raises:
        ModelError: naming the folder or file, and what to do.
    """
    path = Path(folder)
    if (path / "adapter_config.json").is_file():
        raise ModelError(
            f"'{name or path}' holds an adapter (adapter_config.json), and its base model alone is a different "
            "model; merge the two first: merge_and_unload() of PEFT, then save_pretrained."
        )
    shards = weight_names(path)
    if not shards:
        raise ModelError(_no_weights(path, name))
    for shard in shards:
        _check_safetensors(path / shard)
    return [path / shard for shard in shards]


def weight_names(path: Path) -> list[str]:
    """Return the names of the files of safetensors in a folder, by its index where there are several; else none.

    Raises:
        ModelError: for a damaged index, or one that names files elsewhere.
    """
    if (path / _WEIGHTS).is_file():
        return [_WEIGHTS]
    if (path / _INDEX).is_file():
        return _shards(path / _INDEX)
    return []


def _shards(index: Path) -> list[str]:
    """Return the names of the files of weights in an index.

    Raises:
        ModelError: for a damaged index, one without files, or one that names files elsewhere.
    """
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = sorted({str(name) for name in weight_map.values()})
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ModelError(f"The index '{index}' is damaged; copy or download the model again.") from error
    if not shards:
        raise ModelError(f"The index '{index}' names no files; copy or download the model again.")
    for name in shards:
        folder_inside(index.parent, name, index.name)
    return shards


def _check_safetensors(file: Path) -> None:
    """Refuse a file of weights that is missing, damaged or empty."""
    if not file.is_file():
        raise ModelError(f"The weights lack '{file}'; copy or download the model again.")
    try:
        with safe_open(str(file), framework="pt") as tensors:
            is_empty = not list(tensors.keys())
    except (SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"The weights '{file}' are damaged ({reason}); copy or download the model again.") from error
    if is_empty:
        raise ModelError(f"The weights '{file}' hold no tensors; copy or download the model again.")


def check_not_pickled(name: str | Path) -> None:
    """Refuse a model that is nowhere, or has only pickled weights; one without any is a configuration to plan with.

    Raises:
        ModelError: with the way to a safe copy.
    """
    check_there(name)
    resolved = resolve_model(name)
    path = Path(resolved)
    if is_local(resolved) and any(_pickles(path)) and not weight_names(path):
        raise ModelError(_no_weights(path, None))


def fetch_pickles(name: str | Path) -> list[Path]:
    """Return the files of a model's pickled weights, fetched where they are on the Hub; none of them is opened.

    Raises:
        ModelError: see `fetch`; for safetensors beside them, which need no copy, and for no such files.
    """
    folder = fetch(name, None, (*SMALL_FILES, _WEIGHTS, _INDEX, _PICKLE, _PICKLE_INDEX))
    if weight_names(folder):
        raise ModelError(f"'{name}' has safetensors, which are read as they are; leave out --read-pickled.")
    names = [_PICKLE]
    if (folder / _PICKLE_INDEX).is_file():
        names = _shards(folder / _PICKLE_INDEX)
    if (folder / _PICKLE).is_file():
        names = [_PICKLE]
    elif not is_local(resolve_model(name)):
        folder = fetch(name, None, names)
    for file in names:
        if not (folder / file).is_file():
            check_fetched(name)
            raise ModelError(f"'{name}' has no {file}; --read-pickled reads the weights of that name, or of its index.")
    return [folder / file for file in names]


def _pickles(path: Path) -> Iterator[Path]:
    return (file for pattern in _PICKLES for file in path.glob(pattern))


def _no_weights(path: Path, name: str | Path | None) -> str:
    """Return the message for a model without safetensors, by the weights that it has instead."""
    on_hub = name is not None and not is_local(resolve_model(name))
    if on_hub or any(_pickles(path)):
        place = f"'{name}' has no safetensors on the Hub" if on_hub else f"The folder '{path}' has only pickled weights"
        return (
            f"{place}; pickles can run code and are never loaded. Make a safe copy once: limbeck export {name or path} "
            "--format safetensors --read-pickled"
        )
    unread = [file.name for pattern in _OTHER_FRAMEWORKS for file in path.glob(pattern)]
    hint = f" (it has {unread[0]}, of another framework)" if unread else ""
    return f"The folder '{path}' has no model.safetensors{hint}; save the model's weights there."
