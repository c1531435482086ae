"""Writing how a model makes sentence vectors into its folder, as sentence-transformers reads it."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.models.folder_files import MODULES, read_json
from limbeck.models.sentences import LIBRARY_CONFIG, SentenceModule, SentencePooling

_ROUTER_CONFIG = "router_config.json"
_LIBRARY_MODULES = "sentence_transformers.models"


def write_sentence_transformers_files(
    folder: Path,
    *,
    width: int,
    pooling: str,
    normalize: bool,
    max_length: int | None,
    like: SentencePooling | None = None,
) -> None:
    """Say in a model's folder how sentence vectors are made, so that `SentenceTransformer(folder)` loads it.

    Args:
        folder: Holds the model and its tokenizer.
        width: Width of the hidden states.
        pooling: See `limbeck.models.sentences.POOLINGS`.
        normalize: Scale vectors to length one.
        max_length: Longest input in tokens, or None for the model's own.
        like: Its modules, whose weights are copied unless they are in their place, its prompts and its similarity are
            taken too.
    """
    sentence = replace(
        like or SentencePooling("", False, None), pooling=pooling, normalize=normalize, max_length=max_length
    )
    behind = (*sentence.modules, *((SentenceModule("Normalize"),) if sentence.normalize else ()))
    kinds = ["Transformer", "Pooling", *(module.kind for module in behind)]
    places = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds) if index)]
    modules = [
        {"idx": index, "name": str(index), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]
    contents: dict[str, Any] = {
        "modules.json": modules,
        "sentence_bert_config.json": {"do_lower_case": False}
        | ({} if sentence.max_length is None else {"max_seq_length": sentence.max_length}),
        f"{places[1]}/config.json": _pooling_config(sentence, width),
    }
    if sentence.prompts or sentence.similarity:
        named = {"prompts": dict(sentence.prompts), "default_prompt_name": sentence.default_prompt}
        similarity = {"similarity_fn_name": sentence.similarity} if sentence.similarity else {}
        contents[LIBRARY_CONFIG] = named | similarity
    for place, module in zip(places[2:], behind, strict=True):
        (folder / place).mkdir(exist_ok=True)
        if module.folder is not None:
            contents[f"{place}/config.json"] = _module_config(module)
            if module.folder != folder / place:
                shutil.copyfile(module.folder / "model.safetensors", folder / place / "model.safetensors")
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _pooling_config(sentence: SentencePooling, width: int) -> dict[str, Any]:
    """The configuration of a pooling, as all releases of sentence-transformers read it where one can say it."""
    modes = sentence.pooling.split("+")
    excluded = {} if sentence.include_prompt else {"include_prompt": False}
    if len(modes) > 1:  # Older releases have an order of their own.
        return {"embedding_dimension": width, "pooling_mode": modes, **excluded}
    config: dict[str, Any] = {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": modes == ["cls"],
        "pooling_mode_mean_tokens": modes == ["mean"],
        "pooling_mode_max_tokens": modes == ["max"],
        "pooling_mode_mean_sqrt_len_tokens": modes == ["mean_sqrt_len_tokens"],
    }
    later = {"weightedmean": "pooling_mode_weightedmean_tokens", "lasttoken": "pooling_mode_lasttoken"}
    return config | {later[mode]: True for mode in modes if mode in later} | excluded


def _module_config(module: SentenceModule) -> dict[str, Any]:
    assert module.widths is not None
    if module.kind == "LayerNorm":
        return {"dimension": module.widths[1]}
    of = "linear" if module.activation == "Identity" else "activation"
    config = {
        "in_features": module.widths[0],
        "out_features": module.widths[1],
        "bias": module.bias,
        "activation_function": f"torch.nn.modules.{of}.{module.activation}",
    }
    return config | ({"use_residual": True} if module.residual else {})


def write_router_files(folder: Path, sentences: Mapping[str, SentencePooling]) -> None:
    """Join the folders `query` and `document` to one model of sentence-transformers.

    Each of the two stays a whole folder by itself. Modules have the names by which all releases from 5 on know them.

    Args:
        folder: Holds the two folders, each a whole model of sentence-transformers.
        sentences: How the model of each role makes sentence vectors, for `query` and `document`.
    """
    structure = {}
    types: dict[str, str] = {}
    for role in sentences:
        modules = read_json(folder / role / MODULES, [])
        places = {str(Path(role, module["path"])): module["type"] for module in modules}
        structure[role] = list(places)
        types |= places
    library: dict[str, Any] = {"prompts": router_prompts(sentences), "default_prompt_name": None}
    similarity = sentences["document"].similarity
    if similarity:
        library["similarity_fn_name"] = similarity

    contents: dict[str, Any] = {
        MODULES: [{"idx": 0, "name": "0", "path": "", "type": f"{_LIBRARY_MODULES}.Router"}],
        _ROUTER_CONFIG: {
            "types": types,
            "structure": structure,
            "parameters": {"default_route": "document", "allow_empty_key": True},
        },
        LIBRARY_CONFIG: library,
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def router_prompts(sentences: Mapping[str, SentencePooling]) -> dict[str, str]:
    """Prompt of each role."""
    return {role: sentence.prompt(role) for role, sentence in sentences.items()}
