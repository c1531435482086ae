"""The files of a model's weights: safetensors, checked before they are loaded, and pickles, which never are loaded.

A *pickle* is Python's own file format; loading one can run code that it holds. Large models keep their weights in
several files, the *shards*, and an index that names them. An *adapter* holds changes of another model's weights.
"""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from limbeck.errors import ModelError
from limbeck.models.folder_files import folder_inside
from limbeck.models.hub_files import check_fetched, check_there, fetch
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.other_folders import ADAPTER, adapter_error, other_folder_error

SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
"""Patterns of configuration and tokenizer files."""
WEIGHTS = "model.safetensors"
"""The weights of a model in one file."""
WEIGHTS_INDEX = "model.safetensors.index.json"
"""The index of weights in several files."""
_PICKLE = "pytorch_model.bin"
_PICKLE_INDEX = "pytorch_model.bin.index.json"
_PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_PATTERNS_OF_OTHER_FRAMEWORKS = ("*.h5", "*.msgpack", "*.onnx", "*.gguf")


def fetch_weights(name: str | Path, revision: str | None) -> list[Path]:
    """Return the files of a model's weights, fetched where they are on the Hub.

    Raises:
        ModelError: see `fetch` and `check_weights`.
    """
    folder = fetch(name, revision, ("config.json", WEIGHTS, WEIGHTS_INDEX, ADAPTER))
    is_on_hub = not is_local(resolve_model(name))
    if is_on_hub and not (folder / WEIGHTS).is_file():
        # The names of the shards stand in the index, which was fetched above.
        shards = weight_names(folder)
        if shards:
            folder = fetch(name, revision, shards)
        else:
            # Neither the weights nor an index could be fetched.
            check_fetched(name)
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
    if (path / ADAPTER).is_file():
        raise adapter_error(path, name)
    files = [path / file for file in weight_names(path)]
    if not files:
        raise _no_weights_error(path, name)
    for file in files:
        _check_safetensors(file)
    return files


def count_numbers(files: Iterable[Path]) -> int:
    """Return how many numbers safetensors files hold, of whatever type; only their headers are read."""
    numbers = 0
    for path in files:
        with safe_open(str(path), framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 - no mapping
                numbers += math.prod(file.get_slice(key).get_shape())
    return numbers


def weight_names(path: Path) -> list[str]:
    """Return the names of the safetensors files in a folder, by its index where there are several; else none.

    Raises:
        ModelError: for a damaged index, or one that names files elsewhere.
    """
    if (path / WEIGHTS).is_file():
        return [WEIGHTS]
    if (path / WEIGHTS_INDEX).is_file():
        return _read_index(path / WEIGHTS_INDEX)
    return []


def check_not_pickled(name: str | Path) -> None:
    """Refuse a model that is nowhere, or that has only pickled weights.

    A folder without any weights is accepted, since a run can be planned with its configuration.

    Raises:
        ModelError: with the way to a safe copy.
    """
    check_there(name)
    resolved = resolve_model(name)
    if not is_local(resolved):
        return
    folder = Path(resolved)
    if _has_pickles(folder) and not weight_names(folder):
        raise _no_weights_error(folder, name=None)


def fetch_pickles(name: str | Path) -> list[Path]:
    """Return the files of a model's pickled weights, fetched where they are on the Hub; none of them is opened.

    Raises:
        ModelError: for what `fetch` refuses, for a model that has safetensors too, which need no copy, and for a model
            that lacks the file `pytorch_model.bin` or a file of its index.
    """
    wanted = (*SMALL_FILES, WEIGHTS, WEIGHTS_INDEX, _PICKLE, _PICKLE_INDEX)
    folder = fetch(name, revision=None, wanted=wanted)
    if weight_names(folder):
        raise ModelError(
            f"'{name}' has weights as safetensors, so nothing pickled needs to be read; leave out --read-pickled."
        )

    has_single_file = (folder / _PICKLE).is_file()
    shards: list[str] = []
    if (folder / _PICKLE_INDEX).is_file():
        # A damaged index is refused here, even beside a single file.
        shards = _read_index(folder / _PICKLE_INDEX)
    names = [_PICKLE]
    if shards and not has_single_file:
        names = shards
    is_on_hub = not is_local(resolve_model(name))
    if is_on_hub and not has_single_file:
        folder = fetch(name, revision=None, wanted=names)

    for file in names:
        if not (folder / file).is_file():
            check_fetched(name)
            raise ModelError(
                f"'{name}' has no {file}, the file that --read-pickled reads; leave out --read-pickled, or give a "
                "folder with this file."
            )
    return [folder / file for file in names]


def _read_index(index: Path) -> list[str]:
    """Return the names of the files of weights in an index.

    Raises:
        ModelError: for a damaged index, one without files, or one that names files elsewhere.
    """
    try:
        # The name of each tensor, with the file that holds it.
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = sorted({str(name) for name in weight_map.values()})
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ModelError(f"The index '{index}' is damaged; copy or download the model again.") from error
    if not shards:
        raise ModelError(f"The index '{index}' names no files; copy or download the model again.")
    for name in shards:
        folder_inside(index.parent, name, origin=index.name)
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


def _no_weights_error(path: Path, name: str | Path | None) -> ModelError:
    """Return the error for a model without safetensors, by the weights that it has instead.

    Args:
        path: The model's folder.
        name: The model, as the user named it; None is the folder.
    """
    safe_copy = (
        "pickles can run code and are never loaded. Make a safe copy once: limbeck export "
        f"{name or path} --format safetensors --read-pickled"
    )
    is_on_hub = name is not None and not is_local(resolve_model(name))
    if is_on_hub:
        return ModelError(f"'{name}' has no safetensors on the Hub; {safe_copy}")
    if _has_pickles(path):
        return ModelError(f"The folder '{path}' has only pickled weights; {safe_copy}")
    other_error = other_folder_error(path, name)
    if other_error is not None:
        return other_error
    hint = ""
    other_files = list(_files_of(path, _PATTERNS_OF_OTHER_FRAMEWORKS))
    if other_files:
        hint = f" (it has {other_files[0].name}, of another framework)"
    return ModelError(f"The folder '{path}' has no {WEIGHTS}{hint}; save the model's weights there.")


def _has_pickles(folder: Path) -> bool:
    """Whether a folder has a file that is named like pickled weights."""
    return any(_files_of(folder, _PICKLE_PATTERNS))


def _files_of(folder: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    """The files of a folder that fit one of some patterns."""
    for pattern in patterns:
        yield from folder.glob(pattern)
