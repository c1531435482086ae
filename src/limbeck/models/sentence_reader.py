"""How a model makes sentence vectors, read from the files of sentence-transformers in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from limbeck.errors import ModelError, suggestion
from limbeck.models.locating import MODULES, fetch_modules, folder_inside, is_local, read_json, resolve_model
from limbeck.models.sentences import LIBRARY_CONFIG, POOLINGS, SentenceModule, SentencePooling

_MOST_TOKENS = 100_000_000

_MOST_WIDTH = 1_000_000

_LONGEST_PROMPT = 100_000

_VECTOR = "sentence_embedding"

_HIDDEN = "last_hidden_state"

# Arguments of a tokenizer by which a text has the same tokens.
_HARMLESS, _USUAL = ("padding", "pad_to_multiple_of", "return_tensors"), [("truncation", True)]

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
    root, found = sentence_modules(resolved)
    if not found:
        return None
    places = [(kind.rpartition(".")[2], folder_inside(root, place, MODULES)) for kind, place in found]
    _check_kinds(name_or_path, [kind for kind, _ in found])
    if len(places) == 1:
        return None
    transformer, pooling = places[0][1], _read_config(places[1][1])
    _check_transformer(transformer, resolved)
    modules = [_read_module(kind, place) for kind, place in places[2:] if kind != "Dropout"]  # Training alone has it.
    _check_widths(name_or_path, modules)
    normalize = bool(modules) and modules[-1].kind == "Normalize"
    prompts, default = read_prompts(root / LIBRARY_CONFIG)
    library = read_json(root / LIBRARY_CONFIG, {})
    cut = library.get("truncate_dim")
    similarity = library.get("similarity_fn_name")
    return SentencePooling(
        pooling=_pooling_mode(places[1][1] / "config.json", pooling),
        normalize=normalize,
        max_length=_longest_input(transformer),
        modules=tuple(modules[:-1] if normalize else modules),
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
    mode = _pooling_mode(place, config) if (config := read_json(place, {})) else "mean"
    behind = [each.name for each in sorted(root.glob("[2-9]_*")) if not each.name.endswith("_Normalize")]
    if mode != "mean" or behind:
        lacks = f"names no pooling in {MODULES}" if (root / MODULES).is_file() else f"has no {MODULES}"
        says = f"says {mode}" if mode != "mean" else f"is followed by '{behind[0]}'"
        raise ModelError(
            f"'{name_or_path}' {lacks}, so that its vectors would be the mean of tokens, but its '1_Pooling' {says}: "
            "copy or download the model again, or ask for a pooling (method.pooling in a recipe of "
            "sentence_embedding, `evaluate --set pooling=…`)."
        )


def routes_of(name_or_path: str | Path) -> tuple[str, str] | None:
    """Return the models of a router's folder that read queries and documents; None of any other model.

    Args:
        name_or_path: A folder, as `limbeck export --format router` writes it; anything else is no router.

    Raises:
        ModelError: for a router whose models are no whole folders, or an unreadable `modules.json`.
    """
    try:
        folder = Path(name_or_path).expanduser()
        listed = read_json(folder / MODULES, []) if (folder / MODULES).is_file() else []
    except (RuntimeError, OSError, ValueError):  # No folder by this name; `resolve_model` says why.
        return None
    kinds = [str(module.get("type", "")) for module in listed if isinstance(module, dict)]
    if not any(kind.rpartition(".")[2] in ("Router", "Asym") for kind in kinds):
        return None
    routes = folder / "query", folder / "document"
    if len(kinds) > 1 or not all((route / MODULES).is_file() for route in routes):
        raise ModelError(
            f"'{name_or_path}' sends queries and documents to different models, but does not have them as whole "
            "folders 'query' and 'document'; give the model of the queries, and that of the documents as --teacher."
        )
    return str(routes[0]), str(routes[1])


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


def _check_kinds(name: str | Path, kinds: list[str]) -> None:
    """Refuse modules of others than sentence-transformers, unknown ones, and known ones in an unknown order."""
    short = [kind.rpartition(".")[2] for kind in kinds]
    known = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "Dropout")
    wrong = [
        kind
        for kind, last in zip(kinds, short, strict=True)
        if not kind.startswith("sentence_transformers.") or last not in known
    ]
    if wrong:
        reason = _NOT_APPLIED.get(wrong[0].rpartition(".")[2], "it is unknown")
        raise ModelError(
            f"'{name}' makes its vectors with {wrong[0][:200]!r}, which limbeck cannot apply: {reason}. To use its "
            "Transformer alone, take it without modules.json."
        )
    if short[:2] != ["Transformer", "Pooling"][: len(short)] or set(short[2:]) & {"Transformer", "Pooling"}:
        raise ModelError(
            f"'{name}' makes its vectors with {', '.join(short)[:200]}; limbeck applies a Transformer, a Pooling "
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
    for key, said in _unread(config):
        raise ModelError(
            f"'{file}' says {key} {str(said)[:80]}; limbeck reads texts as the tokenizer alone gives them, and the "
            "last hidden states: take that out of a copy of the folder, if its vectors may be others."
        )
    if config.get("do_lower_case") and not _lowers_case(read_json(Path(resolved) / "tokenizer.json", {})):
        raise ModelError(
            f"'{file}' says do_lower_case, but the tokenizer beside it keeps capitals; load the model once with "
            "sentence-transformers 5 or later and save it again, which puts it into the tokenizer."
        )


def _unread(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings of sentence-transformers 6 by which other tokens are read, or another output."""
    for key in ("query_length", "document_length", "query_expansion"):
        if config.get(key):
            yield key, config[key]
    given, modalities = (_mapping(config.get(key)) for key in ("processing_kwargs", "modality_config"))
    for modality in ("text", "common"):
        said = _mapping(given.get(modality))
        if changed := {
            key: value for key, value in said.items() if (key, value) not in _USUAL and key not in _HARMLESS
        }:
            yield "processing_kwargs", changed
    text = _mapping(modalities.get("text"))
    if (text.get("method", "forward"), text.get("method_output_name") or _HIDDEN) != ("forward", _HIDDEN):
        yield "modality_config", text


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


def _read_module(kind: str, folder: Path) -> SentenceModule:
    """Read the configuration of a module behind the pooling."""
    file = folder / "config.json"
    config = read_json(file, {}) if kind == "Normalize" else _read_config(folder)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _VECTOR):
            raise ModelError(f"'{file}' says {key} {str(config[key])[:80]!r}; limbeck applies modules to {_VECTOR}.")
    if kind == "Normalize":
        return SentenceModule("Normalize")
    if kind == "LayerNorm":
        width = _width(file, config, "dimension")
        return SentenceModule("LayerNorm", folder, (width, width))
    path, _, activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")
    if not (path == "torch.nn" or path.startswith("torch.nn.modules.")) or activation not in _activations():
        raise ModelError(
            f"'{file}' names the activation '{path[:80]}.{activation[:80]}', which is not one of torch.nn without "
            f"arguments and weights.{suggestion(activation, _activations())}"
        )
    flags = {key: config.get(key, default) for key, default in (("bias", True), ("use_residual", False))}
    if wrong := [key for key, value in flags.items() if not isinstance(value, bool)]:
        raise ModelError(f"'{file}' says {wrong[0]} {str(flags[wrong[0]])[:80]!r}; give true or false.")
    widths = _width(file, config, "in_features"), _width(file, config, "out_features")
    return SentenceModule("Dense", folder, widths, flags["bias"], activation, flags["use_residual"])


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
    for module in (module for module in modules if module.widths is not None):
        assert module.widths is not None
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
    own = read_json(transformer / "sentence_bert_config.json", {})
    file, key, value = transformer / "sentence_bert_config.json", "max_seq_length", own.get("max_seq_length")
    if value is None and "modality_config" in own:
        file, key = transformer / "tokenizer_config.json", "model_max_length"
        value = read_json(file, {}).get(key)
        if isinstance(value, int | float) and value > _MOST_TOKENS:
            return None  # Tokenizers without a limit say 1e30.
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_TOKENS):
        raise ModelError(
            f"{key} in '{file}' is {str(value)[:80]}; give a whole number of 1 to {_MOST_TOKENS:,}, or null."
        )
    return value


def _pooling_mode(file: Path, config: Mapping[str, Any]) -> str:
    # New folders name the modes; older ones have one flag a mode.
    named = config.get("pooling_mode")
    listed = [named] if isinstance(named, str) else named
    flags = {f"pooling_mode_{name}": name for name in ("lasttoken", "mean_sqrt_len_tokens")}
    flags |= {f"pooling_mode_{name}_token{'' if name == 'cls' else 's'}": name for name in POOLINGS[:3]}
    flags |= {"pooling_mode_weightedmean_tokens": "weightedmean"}
    if listed is None:
        unknown = [key for key, on in config.items() if key.startswith("pooling_mode_") and on and key not in flags]
        order = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
        chosen = [name for name in order if any(config.get(key) for key, flag in flags.items() if flag == name)]
        listed = unknown or chosen
    if not isinstance(listed, list) or not listed or not all(name in POOLINGS for name in listed):
        shown = " + ".join(map(str, listed))[:200] if isinstance(listed, list) and listed else "none"
        raise ModelError(f"The pooling in '{file}' is {shown}; limbeck knows {', '.join(POOLINGS)}.")
    return "+".join(listed)
