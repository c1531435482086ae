"""How a model makes sentence vectors, read from the files of sentence-transformers in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from limbeck.errors import ModelError, suggestion
from limbeck.models.folder_files import MODULES, folder_inside, read_json, read_modules
from limbeck.models.hub_files import fetch
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.sentences import LIBRARY_CONFIG, POOLINGS, SentenceModule, SentencePooling

_MOST_TOKENS = 100_000_000

_MOST_WIDTH = 1_000_000

_LONGEST_PROMPT = 100_000

_VECTOR = "sentence_embedding"

_HIDDEN = "last_hidden_state"

# Arguments of a tokenizer by which a text has the same tokens.
_HARMLESS = ("padding", "pad_to_multiple_of", "return_tensors")
_USUAL = [("truncation", True)]

_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")

# Modules of sentence-transformers that limbeck does not apply, with the reason.
_NOT_APPLIED = {
    "Router": "it sends queries and documents to different models; give one of them",
    "Asym": "it sends queries and documents to different models; give one of them",
    "StaticEmbedding": "it has no Transformer to distil",
    "WordEmbeddings": "it has no Transformer to distil",
    "BoW": "it has no Transformer to distil",
    "CLIPModel": "it reads pictures too",
    "WeightedLayerPooling": "it mixes all layers; limbeck pools the last one",
    "WordWeights": "it weights words by its own list",
    "CNN": "it has layers between Transformer and pooling",
    "LSTM": "it has layers between Transformer and pooling",
}


def sentence_pooling(name_or_path: str | Path, revision: str | None = None) -> SentencePooling | None:
    """Read how a sentence-transformers folder makes its vectors; of a Hub name its small files are fetched.

    Args:
        name_or_path: A folder, `package:NAME` or a Hub name (see `resolve_model`).
        revision: Of a Hub name: branch, tag or commit; None is `main`.

    Returns:
        None for a model without `modules.json` (an ordinary Transformer), or with a Transformer alone in it.

    Raises:
        ModelError: for a missing folder, unreadable files, or modules that limbeck cannot apply, without which its
            vectors would be others.
    """
    resolved = resolve_model(name_or_path)
    if not is_local(resolved):
        resolved = str(fetch_modules(name_or_path, revision))
    root, listed = sentence_modules(resolved)
    if not listed:
        return None
    folders = [folder_inside(root, place, MODULES) for _, place in listed]
    _check_classes(name_or_path, [cls for cls, _ in listed])
    if len(listed) == 1:
        return None

    transformer, pooling_folder, *behind = folders
    pooling = _read_config(pooling_folder)
    _check_transformer(transformer, resolved)
    modules = []
    for (cls, _), folder in zip(listed[2:], behind, strict=True):
        class_name = _class_name(cls)
        if class_name != "Dropout":  # It does nothing outside of training.
            modules.append(_read_module(class_name, folder))
    _check_widths(name_or_path, modules)
    normalize = bool(modules) and modules[-1].kind == "Normalize"
    if normalize:
        modules = modules[:-1]

    prompts, default = read_prompts(root / LIBRARY_CONFIG)
    library = read_json(root / LIBRARY_CONFIG, {})
    cut = library.get("truncate_dim")
    similarity = library.get("similarity_fn_name")
    return SentencePooling(
        pooling=_pooling_mode(pooling_folder / "config.json", pooling),
        normalize=normalize,
        max_length=_longest_input(transformer),
        modules=tuple(modules),
        include_prompt=bool(pooling.get("include_prompt", True)),
        prompts=prompts,
        default_prompt=default,
        similarity=similarity if similarity in _SIMILARITIES else None,
        truncate_dim=cut if type(cut) is int else None,
    )


def check_pooling_named(name_or_path: str | Path) -> None:
    """Refuse a folder whose `modules.json` names no pooling, or is not there, beside one that the mean is not.

    Args:
        name_or_path: The model; of a Hub name no pooling is fetched that nothing names.

    Raises:
        ModelError: for such a folder.
    """
    root = Path(resolve_model(name_or_path))
    place = root / "1_Pooling" / "config.json"
    config = read_json(place, {})
    mode = _pooling_mode(place, config) if config else "mean"
    behind = [folder.name for folder in sorted(root.glob("[2-9]_*")) if not folder.name.endswith("_Normalize")]
    if mode != "mean":
        problem = f"says {mode}"
    elif behind:
        problem = f"is followed by '{behind[0]}'"
    else:
        return
    lack = f"names no pooling in {MODULES}" if (root / MODULES).is_file() else f"has no {MODULES}"
    raise ModelError(
        f"'{name_or_path}' {lack}, so that its vectors would be the mean of tokens, but its '1_Pooling' {problem}: "
        "copy or download the model again, or ask for a pooling (method.pooling in a recipe of "
        "sentence_embedding, `evaluate --set pooling=…`)."
    )


def routes_of(name_or_path: str | Path) -> tuple[str, str] | None:
    """Return the models of a router's folder that read queries and documents; None for any other model.

    Args:
        name_or_path: A folder, as `limbeck export --format router` writes it; anything else is no router.

    Raises:
        ModelError: for a router whose models are no whole folders, or a `modules.json` that is no JSON.
    """
    try:
        folder = Path(name_or_path).expanduser()
        has_modules = (folder / MODULES).is_file()
    except (RuntimeError, OSError, ValueError):
        # The name cannot be a folder's, so `resolve_model` refuses it or takes it for a Hub name.
        return None
    if not has_modules:
        return None

    modules = read_json(folder / MODULES, [])
    classes = [str(module.get("type", "")) for module in modules if isinstance(module, dict)]
    if not any(_class_name(cls) in ("Router", "Asym") for cls in classes):
        return None
    queries = folder / "query"
    documents = folder / "document"
    has_both_folders = (queries / MODULES).is_file() and (documents / MODULES).is_file()
    if len(classes) > 1 or not has_both_folders:
        raise ModelError(
            f"'{name_or_path}' sends queries and documents to different models, but does not have them as whole "
            "folders 'query' and 'document'; give the model of the queries, and that of the documents as --teacher."
        )
    return str(queries), str(documents)


def fetch_modules(name: str | Path, revision: str | None) -> Path:
    """Return the folder of a model's sentence-transformers files, fetched where it is on the Hub; it may have none.

    Raises:
        ModelError: see `fetch`.
    """
    files = ("sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json")
    folder = fetch(name, revision, (MODULES, LIBRARY_CONFIG, *files))
    places = [str(module.get("path") or "") for module in read_modules(folder)]
    wanted = []
    for place in places:
        if place:
            inside = folder_inside(folder, place, MODULES).relative_to(folder)
            wanted += [f"{inside}/{file}" for file in ("config.json", *files, "model.safetensors")]
    if not wanted:
        return folder
    return fetch(name, revision, wanted)


def sentence_modules(resolved: str) -> tuple[Path, list[tuple[str, str]]]:
    """Return the root of a sentence-transformers folder, and its modules in order: type and path.

    Args:
        resolved: As `resolve_model` returns it; the root may be the folder above.

    Raises:
        ModelError: for an unreadable `modules.json`.
    """
    root = Path(resolved)
    if not (root / MODULES).is_file() and (root.parent / MODULES).is_file():
        root = root.parent
    listed = read_json(root / MODULES, [])
    modules = [module for module in listed if isinstance(module, dict)]
    return root, [(str(module.get("type", "")), str(module.get("path", ""))) for module in modules]


def _class_name(path: str) -> str:
    """Return the name of a class, given its path with modules."""
    return path.rpartition(".")[2]


def _check_classes(name: str | Path, classes: list[str]) -> None:
    """Refuse modules of other packages, unknown modules, and known modules in an unknown order.

    Args:
        name: The model, as the user named it.
        classes: Paths of the modules' classes, in order.
    """
    known = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "Dropout")
    for cls in classes:
        if not cls.startswith("sentence_transformers.") or _class_name(cls) not in known:
            reason = _NOT_APPLIED.get(_class_name(cls), "it is unknown")
            raise ModelError(
                f"'{name}' makes its vectors with {cls[:200]!r}, which limbeck cannot apply: {reason}. To use its "
                "Transformer alone, take it without modules.json."
            )
    names = [_class_name(cls) for cls in classes]
    first = ["Transformer", "Pooling"]
    if names[:2] != first[: len(names)] or set(names[2:]) & set(first):
        raise ModelError(
            f"'{name}' makes its vectors with {', '.join(names)[:200]}; limbeck applies a Transformer, a Pooling "
            "and the modules after them, in this order. To use its Transformer alone, take it without modules.json."
        )


def _check_transformer(folder: Path, resolved: str) -> None:
    """Refuse a Transformer module that reads or gives something else than its last hidden states."""
    file = folder / "sentence_bert_config.json"
    config = read_json(file, {})
    task, output = config.get("transformer_task", "feature-extraction"), config.get("module_output_name")
    if task != "feature-extraction" or output not in (None, "token_embeddings"):
        raise ModelError(
            f"'{file}' says transformer_task {str(task)[:80]!r} and module_output_name {str(output)[:80]!r}; limbeck "
            "reads the last hidden states of a feature-extraction model."
        )
    unread = next(_unread_settings(config), None)
    if unread is not None:
        key, value = unread
        raise ModelError(
            f"'{file}' says {key} {str(value)[:80]}; limbeck reads texts as the tokenizer alone gives them, and the "
            "last hidden states: take that out of a copy of the folder, if its vectors may be others."
        )
    if config.get("do_lower_case") and not _lowers_case(read_json(Path(resolved) / "tokenizer.json", {})):
        raise ModelError(
            f"'{file}' says do_lower_case, but the tokenizer beside it keeps capitals; load the model once with "
            "sentence-transformers 5 or later and save it again, which puts it into the tokenizer."
        )


def _unread_settings(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings of sentence-transformers 6 by which other tokens are read, or another output."""
    for key in ("query_length", "document_length", "query_expansion"):
        if config.get(key):
            yield key, config[key]
    arguments = _mapping(config.get("processing_kwargs"))
    for modality in ("text", "common"):
        settings = _mapping(arguments.get(modality))
        changed = {key: value for key, value in settings.items() if not _keeps_tokens(key, value)}
        if changed:
            yield "processing_kwargs", changed
    text = _mapping(_mapping(config.get("modality_config")).get("text"))
    method = text.get("method", "forward")
    output = text.get("method_output_name") or _HIDDEN
    if method != "forward" or output != _HIDDEN:
        yield "modality_config", text


def _keeps_tokens(key: str, value: Any) -> bool:
    """Whether a text has the same tokens with this argument of a tokenizer."""
    return key in _HARMLESS or (key, value) in _USUAL


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _lowers_case(tokenizer: Mapping[str, Any]) -> bool:
    normalizer = tokenizer.get("normalizer") or {}
    parts = normalizer.get("normalizers") or [normalizer]
    return any(part.get("type") == "Lowercase" or part.get("lowercase") for part in parts if isinstance(part, dict))


def _read_config(folder: Path) -> dict[str, Any]:
    """Read the configuration that a module cannot be without."""
    file = folder / "config.json"
    if not file.is_file():
        lost = file if folder.is_dir() else folder
        raise ModelError(f"'{lost}' is missing, and {MODULES} names its module; copy or download the model again.")
    return read_json(file, {})


def _read_module(class_name: str, folder: Path) -> SentenceModule:
    """Read the configuration of a module behind the pooling."""
    file = folder / "config.json"
    config = read_json(file, {}) if class_name == "Normalize" else _read_config(folder)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _VECTOR):
            raise ModelError(f"'{file}' says {key} {str(config[key])[:80]!r}; limbeck applies modules to {_VECTOR}.")
    if class_name == "Normalize":
        return SentenceModule("Normalize")
    if class_name == "LayerNorm":
        width = _width(file, config, "dimension")
        return SentenceModule("LayerNorm", folder, (width, width))
    return _read_dense(file, config, folder)


def _read_dense(file: Path, config: Mapping[str, Any], folder: Path) -> SentenceModule:
    """Read the configuration of a linear map with an activation.

    Args:
        file: The configuration's, for messages.
        config: The configuration.
        folder: Of the module's weights.
    """
    path, _, activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")
    if not (path == "torch.nn" or path.startswith("torch.nn.modules.")) or activation not in _activations():
        raise ModelError(
            f"'{file}' names the activation '{path[:80]}.{activation[:80]}', which is not one of torch.nn without "
            f"arguments and weights.{suggestion(activation, _activations())}"
        )
    bias = _flag(file, config, "bias", default=True)
    residual = _flag(file, config, "use_residual", default=False)
    widths = (_width(file, config, "in_features"), _width(file, config, "out_features"))
    return SentenceModule("Dense", folder, widths, bias, activation, residual)


def _flag(file: Path, config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise ModelError(f"'{file}' says {key} {str(value)[:80]!r}; give true or false.")
    return value


def _activations() -> list[str]:
    """Names of the activations in `torch.nn` that need no argument and have no weights, and of none at all."""
    from torch.nn.modules import activation

    with_arguments = {"MultiheadAttention", "PReLU", "Threshold"}
    names = (name for name in activation.__all__ if name not in with_arguments)
    return ["Identity", *names]


def _width(file: Path, config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_WIDTH:
        raise ModelError(f"'{file}' says {key} {str(value)[:80]}; give a whole number of 1 to {_MOST_WIDTH:,}.")
    return value


def _check_widths(name: str | Path, modules: list[SentenceModule]) -> None:
    width = None
    for module in modules:
        if module.widths is None:
            continue
        if width is not None and module.widths[0] != width:
            raise ModelError(
                f"The module '{module.folder}' of '{name}' takes vectors of width {module.widths[0]}, but the "
                f"module before it gives {width}; copy or download the model again."
            )
        width = module.widths[1]


def read_prompts(file: Path) -> tuple[Mapping[str, str], str | None]:
    """Read the prompts of a model, without empty ones, and the name of the default one."""
    config = read_json(file, {})
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str) and len(text) <= _LONGEST_PROMPT for text in prompts.values()
    ):
        raise ModelError(f"The prompts in '{file}' do not have the expected structure: give each a name and a text.")
    if default is not None and default not in prompts:
        raise ModelError(
            f"default_prompt_name in '{file}' is {str(default)[:80]!r}.{suggestion(str(default), prompts)}"
        )
    return {name: text for name, text in prompts.items() if text}, default


def _longest_input(transformer: Path) -> int | None:
    """Return the longest input by its own key, else by the tokenizer, where sentence-transformers 6 keeps it."""
    file = transformer / "sentence_bert_config.json"
    key = "max_seq_length"
    config = read_json(file, {})
    value = config.get(key)
    if value is None and "modality_config" in config:
        file = transformer / "tokenizer_config.json"
        key = "model_max_length"
        value = read_json(file, {}).get(key)
        if isinstance(value, int | float) and value > _MOST_TOKENS:
            return None  # Tokenizers without a limit say 1e30.
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_TOKENS):
        raise ModelError(
            f"{key} in '{file}' is {str(value)[:80]}; give a whole number of 1 to {_MOST_TOKENS:,}, or null."
        )
    return value


_MODE_OF_FLAG = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Flags of older folders, in the order in which sentence-transformers joins their vectors."""


def _pooling_mode(file: Path, config: Mapping[str, Any]) -> str:
    """Return the pooling of a configuration. New folders name the modes; older ones have one flag a mode."""
    modes = config.get("pooling_mode")
    if isinstance(modes, str):
        modes = [modes]
    if modes is None:
        flags = [key for key, is_on in config.items() if key.startswith("pooling_mode_") and is_on]
        unknown = [key for key in flags if key not in _MODE_OF_FLAG]
        known = [mode for flag, mode in _MODE_OF_FLAG.items() if flag in flags]
        modes = unknown or known
    if not isinstance(modes, list) or not modes:
        raise ModelError(f"The pooling in '{file}' is none; limbeck knows {', '.join(POOLINGS)}.")
    if not all(mode in POOLINGS for mode in modes):
        shown = " + ".join(map(str, modes))[:200]
        raise ModelError(f"The pooling in '{file}' is {shown}; limbeck knows {', '.join(POOLINGS)}.")
    return "+".join(modes)
