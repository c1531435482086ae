"""Writing how a model makes sentence vectors into its folder, as sentence-transformers reads it.

Sentence-transformers makes a vector by *modules* one after the other: a Transformer, a pooling, and others behind it
such as linear maps. `modules.json` lists them, and each has a folder for its configuration and weights. A *router* is a
model of sentence-transformers that reads queries and documents with different modules.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.models.folder_files import MODULES, read_modules
from limbeck.models.sentences import LIBRARY_CONFIG, SentenceModule, SentencePooling
from limbeck.models.weight_files import WEIGHTS

TRANSFORMER_CONFIG = "sentence_bert_config.json"
"""The file in which sentence-transformers keeps how its Transformer module reads text."""
_ROUTER_CONFIG = "router_config.json"
# The Python module in which all releases from 5 on find the classes of modules.
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
    """Write the files by which `SentenceTransformer(folder)` loads a model and makes its sentence vectors.

    Args:
        folder: Holds the model and its tokenizer.
        width: Width of the hidden states.
        pooling: See `limbeck.models.sentences.POOLINGS`.
        normalize: Whether vectors are scaled to length one.
        max_length: Longest input in tokens, or None for the model's own.
        like: A description from which everything else is taken: modules behind the pooling, prompts and similarity.
            The weights of these modules are copied from the folders that it names, unless these are in `folder`
            already. None is for a model without any of these.
    """
    sentence = SentencePooling(pooling, normalize, max_length)
    if like is not None:
        sentence = replace(like, pooling=pooling, normalize=normalize, max_length=max_length)
    modules_behind = list(sentence.modules)
    # The scaling to length one is the last module. `SentencePooling` has it as the field `normalize`, and the reader of
    # these files takes a last `Normalize` out of `modules`, so it is written once.
    if normalize:
        modules_behind.append(SentenceModule("Normalize"))

    # The Transformer's files lie in the model's folder itself, whose place is therefore empty.
    transformer: dict[str, Any] = {"do_lower_case": False}
    if max_length is not None:
        transformer["max_seq_length"] = max_length
    _write_json(folder / TRANSFORMER_CONFIG, transformer)
    # The other modules have folders inside, named by their number and class: 1_Pooling, 2_Dense.
    pooling_place = "1_Pooling"
    _write_json(folder / pooling_place / "config.json", _pooling_config(sentence, width))
    entries = [_module_entry(0, "Transformer", place=""), _module_entry(1, "Pooling", place=pooling_place)]
    for index, module in enumerate(modules_behind, start=len(entries)):
        place = f"{index}_{module.class_name}"
        _write_module(folder / place, module)
        entries.append(_module_entry(index, module.class_name, place=place))
    _write_json(folder / MODULES, entries)

    if sentence.prompts or sentence.similarity:
        library: dict[str, Any] = {
            "prompts": dict(sentence.prompts),
            "default_prompt_name": sentence.default_prompt,
        }
        if sentence.similarity:
            library["similarity_fn_name"] = sentence.similarity
        _write_json(folder / LIBRARY_CONFIG, library)


def _module_entry(index: int, class_name: str, *, place: str) -> dict[str, Any]:
    """Return an entry of `modules.json`; `place` is the module's folder, below that of the model."""
    return {"idx": index, "name": str(index), "path": place, "type": f"{_LIBRARY_MODULES}.{class_name}"}


def _write_module(place: Path, module: SentenceModule) -> None:
    """Write the configuration of a module behind the pooling, and copy its weights unless they lie there already."""
    place.mkdir(exist_ok=True)
    # A module without weights needs no configuration; sentence-transformers still wants its folder.
    if module.folder is None:
        return
    _write_json(place / "config.json", _module_config(module))
    if module.folder != place:
        shutil.copyfile(module.folder / WEIGHTS, place / WEIGHTS)


def _pooling_config(sentence: SentencePooling, width: int) -> dict[str, Any]:
    """Return the configuration of a pooling, in the oldest form that can express it, which all releases read."""
    modes = sentence.pooling.split("+")
    config: dict[str, Any]
    if len(modes) > 1:
        # The older form has flags, and joins the vectors of several modes in a fixed order, so only the new form, a
        # list of modes, keeps theirs.
        config = {"embedding_dimension": width, "pooling_mode": modes}
    else:
        config = {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": modes == ["cls"],
            "pooling_mode_mean_tokens": modes == ["mean"],
            "pooling_mode_max_tokens": modes == ["max"],
            "pooling_mode_mean_sqrt_len_tokens": modes == ["mean_sqrt_len_tokens"],
        }
        # The oldest releases do not know these flags, so they are written only where they are needed.
        if modes == ["weightedmean"]:
            config["pooling_mode_weightedmean_tokens"] = True
        if modes == ["lasttoken"]:
            config["pooling_mode_lasttoken"] = True
    if not sentence.include_prompt:
        config["include_prompt"] = False
    return config


def _module_config(module: SentenceModule) -> dict[str, Any]:
    """Return the configuration of a module with weights, a `LayerNorm` or a `Dense`."""
    if module.class_name == "LayerNorm":
        return {"dimension": module.out_width}
    # The Python module of torch in which the class of the activation is defined.
    library = "linear" if module.activation == "Identity" else "activation"
    config: dict[str, Any] = {
        "in_features": module.in_width,
        "out_features": module.out_width,
        "bias": module.bias,
        "activation_function": f"torch.nn.modules.{library}.{module.activation}",
    }
    if module.residual:
        config["use_residual"] = True
    return config


def write_router_files(folder: Path, sentences: Mapping[str, SentencePooling]) -> None:
    """Write the files that join the folders `query` and `document` to a router of sentence-transformers.

    Each of the two remains a whole model by itself.

    Args:
        folder: Holds the two folders, each a whole model of sentence-transformers.
        sentences: How the model of each role makes sentence vectors, for `query` and `document`.
    """
    # By role the folders of its modules in order, and by folder the class of its module.
    structure: dict[str, list[str]] = {}
    classes: dict[str, str] = {}
    for role in sentences:
        structure[role] = []
        for module in read_modules(folder / role):
            place = str(Path(role, module.place))
            structure[role].append(place)
            classes[place] = module.cls
    router = {
        "types": classes,
        "structure": structure,
        # A text that is given without a role is read as a document.
        "parameters": {"default_route": "document", "allow_empty_key": True},
    }
    library: dict[str, Any] = {"prompts": router_prompts(sentences), "default_prompt_name": None}
    similarity = sentences["document"].similarity
    if similarity:
        library["similarity_fn_name"] = similarity

    _write_json(folder / MODULES, [_module_entry(0, "Router", place="")])
    _write_json(folder / _ROUTER_CONFIG, router)
    _write_json(folder / LIBRARY_CONFIG, library)


def router_prompts(sentences: Mapping[str, SentencePooling]) -> dict[str, str]:
    """Return the prompt of each role; empty for a role without one."""
    return {role: sentence.prompt(role) for role, sentence in sentences.items()}


def _write_json(file: Path, content: Any) -> None:
    """Write a file in JSON; its folder is made, if it has to be."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
