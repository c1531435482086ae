"""Finding what limbeck needs to know of an architecture without a row in the table of families.

A family outside of the table is looked into once a configuration: a model of its class with the widths of the
configuration, three blocks, a small vocabulary and random weights runs on one short row. Hooks see which list of
modules runs in order, what its blocks are given and return, which tables of embeddings are read with which rows, and
whether a token sees those after it. Nothing is read from names but the configuration's fields, which are standard.
"""

from __future__ import annotations

import inspect
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.utils import logging as transformers_logging

from limbeck.errors import ModelError, shorten_error
from limbeck.models.family_table import UNLISTED, Family, Fields
from limbeck.models.layer_lists import fit_layer_lists
from limbeck.models.pooler import pooler_option

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# How a family outside of the table is found.

_NUMBERS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
_FFN_WIDTHS = ("intermediate_size", "ffn_dim", "n_inner", "d_inner", "d_ff", "inner_dim", "hidden_dim")
_BLOCKS, _TOKENS, _WORDS = 3, 6, 64
SUCH_AS = "such as bert, roberta, deberta-v2, mpnet or modernbert"
"""Encoders that serve where a model does not, for refusals."""
_FETCH_KERNELS = ("mra", "rwkv", "yoso")
_MOST_NUMBERS = 1_000_000_000
# Of no consequence for the structure; fewer of them mean fewer models to look into.
_LEFT_OUT = {"dtype", "torch_dtype", "architectures", "id2label", "label2id", "name_or_path", "transformers_version"}


@lru_cache(maxsize=64)
def unlisted_family(model_type: str) -> Family:
    """Return what is known of a family outside of the table without a configuration: its fields.

    `transformers` has standard names for the numbers of a model, and a class that has others maps them to those
    (`attribute_map`). What modules the family has, `find_family` tells.

    Args:
        model_type: The family, one that `transformers` knows.

    Raises:
        ModelError: for a family whose models do not read text alone, or that lacks the standard names.
    """
    from transformers import MODEL_MAPPING

    kind, reason = CONFIG_MAPPING[model_type], None
    loader: Any = MODEL_MAPPING.get(kind, None)
    if not inspect.isclass(loader):
        reason = "transformers has no Transformer of it"
    elif kind.sub_configs:
        reason = f"it is made of several models ({', '.join(kind.sub_configs)})"
    elif (read := getattr(loader, "main_input_name", None)) != "input_ids":
        reason = f"it reads {read}, not tokens"
    elif model_type in _FETCH_KERNELS:
        reason = "transformers fetches compiled code from the Hub for it, and limbeck runs none from there"
    standard, own = kind.attribute_map, {} if reason else vars(kind())
    layers, hidden, heads, words = (standard.get(name, name) for name in _NUMBERS)
    if own.get("is_encoder_decoder"):
        reason = "it is an encoder with a decoder"
    elif own and (missing := [name for name in (layers, hidden, heads, words) if name not in own]):
        reason = f"its configuration has no {', '.join(missing)}, which give the size of a model in transformers"
    if reason is not None:
        raise ModelError(f"The family '{model_type}' cannot be read: {reason}; choose a text encoder, {SUCH_AS}.")
    ffn = next((name for field in _FFN_WIDTHS if (name := standard.get(field, field)) in own), _FFN_WIDTHS[0])
    dropouts = [name for name, value in own.items() if type(value) in (int, float) and _is_dropout(name)]
    fields = Fields(layers, hidden, heads, ffn, dropouts=tuple(dropouts))
    return replace(UNLISTED, model_type=model_type, fields=fields)


def _is_dropout(field: str) -> bool:
    """Whether a field is a rate of dropout between the embeddings and the last block."""
    return ("dropout" in field or field.endswith("pdrop")) and not field.startswith(("classifier", "summary"))


def find_family(config: PreTrainedConfig) -> Family:
    """Find what limbeck needs to know of a family outside of the table, by running a small model of it.

    Costs some 0.1 s for the widths of BERT-base, once a configuration.

    Args:
        config: The configuration; its depth and its vocabulary do not count.

    Raises:
        ModelError: for a family that cannot be read, see `unlisted_family`, a model that does not run, or one that has
            no list of blocks that run one after the other.
    """
    names = unlisted_family(str(config.model_type)).fields
    values = json.loads(config.to_json_string(use_diff=False))
    words = min(_WORDS, int(config.vocab_size))
    for key, value in values.items():
        if key.endswith("token_id") and value is not None and not (isinstance(value, int) and 0 <= value < words):
            values[key] = int(not key.startswith("pad"))
    fit_layer_lists(values, int(values[names.layers]), range(_BLOCKS))
    values |= {names.layers: _BLOCKS, "vocab_size": words}
    kept = {key: value for key, value in values.items() if key not in _LEFT_OUT}
    return _find(str(config.model_type), json.dumps(kept, sort_keys=True))


@lru_cache(maxsize=64)
def _find(model_type: str, text: str) -> Family:
    refused = f"The family '{model_type}' is not in limbeck's table, and its structure cannot be determined"
    from transformers import MODEL_MAPPING

    kind = CONFIG_MAPPING[model_type]
    loader: Any = MODEL_MAPPING[kind]
    values = json.loads(text)
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.CRITICAL)
    try:
        with torch.device("meta"):
            numbers = sum(parameter.numel() for parameter in loader(kind(**values)).parameters())
        if numbers > _MOST_NUMBERS:
            raise ModelError(f"{refused}: {_BLOCKS} of its blocks hold {numbers:,} numbers; choose a smaller model.")
        with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings(action="ignore"):
            torch.default_generator.manual_seed(0)
            model = loader._from_config(kind(**values), dtype=torch.float32, **pooler_option(loader)).eval()
            for parameter in model.parameters():  # So that nothing is zero, as some start.
                parameter.add_(torch.randn(parameter.shape), alpha=0.02)
            return _look_into(model, refused)
    except ModelError:
        raise
    except Exception as error:  # Each model stumbles in its own way.
        raise ModelError(f"{refused}: a model of it does not run ({shorten_error(error)}).") from error
    finally:
        transformers_logging.set_verbosity(level)


class _Run(NamedTuple):
    """A call of a module in a list: its place there, the hidden states that it is given, and what it returns."""

    place: int
    given: Any
    returned: Any


def _look_into(model: PreTrainedModel, refused: str) -> Family:
    """Run a small model and return what hooks see; every fact is seen, none is taken from a module's name."""
    config = model.config
    parts = dict(model.named_modules())
    lists = {name: part for name, part in parts.items() if isinstance(part, nn.ModuleList) and len(part) == _BLOCKS}
    tables = {name: part for name, part in parts.items() if isinstance(part, nn.Embedding)}
    runs: dict[str, list[_Run]] = {name: [] for name in lists}
    rows: dict[str, list[int]] = {}

    def left(name: str, place: int, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        runs[name].append(_Run(place, args[0] if args else kwargs.get("hidden_states"), output))

    def read(name: str, module: nn.Module, args: Any) -> None:
        if args and isinstance(args[0], Tensor) and args[0].numel() == _TOKENS:
            rows[name] = args[0].flatten().tolist()

    handles = [table.register_forward_pre_hook(partial(read, name)) for name, table in tables.items()]
    for name, part in lists.items():
        for place, module in enumerate(part):
            handles.append(module.register_forward_hook(partial(left, name, place), with_kwargs=True))
    ids = torch.arange(config.vocab_size - _TOKENS, config.vocab_size).unsqueeze(0)
    first = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    for handle in handles:
        handle.remove()
    ids[0, -1] -= _TOKENS
    changed = (model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state - first).abs().amax(-1)[0]

    expected = (1, _TOKENS, int(config.hidden_size))
    in_order = [name for name, found in runs.items() if _run_in_order(found, expected)]
    paths = [name for name in in_order if not any(name.startswith(f"{other}.") for other in in_order)]
    if len(paths) != 1 or tuple(first.shape) != expected:
        raise ModelError(
            f"{refused}: it has {len(paths)} lists of blocks that run one after the other instead of a single one."
        )
    returned = runs[paths[0]][0].returned
    beside = list(_modules_beside(model, paths[0], refused))
    read_tables = [name for name in tables if name in rows]
    embeddings = [path for path in beside if any(f"{name}.".startswith(f"{path}.") for name in read_tables)]
    padding = config.pad_token_id if isinstance(config.pad_token_id, int) else -1
    words = model.get_input_embeddings()
    places = {name: found[0] for name, found in rows.items() if found == list(range(found[0], found[0] + _TOKENS))}
    of_places = [name for name, start in places.items() if tables[name] is not words and start in (0, padding + 1)]
    of_kinds = [name for name, found in rows.items() if not any(found)]
    has_kinds = [name for name in of_kinds if tables[name].num_embeddings == getattr(config, "type_vocab_size", 0)]
    return replace(
        unlisted_family(str(config.model_type)),
        blocks=paths[0],
        embeddings=tuple(embeddings),
        layout=config.model_type,
        extras=tuple(path for path in beside if path not in embeddings),
        causal=not bool((changed[:-1] > 1e-5 * first.abs().max()).any()),
        padded_positions=any(places[name] > 0 for name in of_places),
        returned=len(returned) if isinstance(returned, tuple) else 0,
        positions=next(iter(of_places), None),
        segments=next(iter(has_kinds), None),
    )


def _run_in_order(runs: list[_Run], shape: tuple[int, ...]) -> bool:
    """Whether the modules of a list ran one after the other, each from hidden states to hidden states."""
    states = [run.given for run in runs]
    states += [run.returned[0] if isinstance(run.returned, tuple) else run.returned for run in runs]
    are_hidden = all(isinstance(state, Tensor) and tuple(state.shape) == shape for state in states)
    return [run.place for run in runs] == list(range(_BLOCKS)) and are_hidden


def _modules_beside(model: nn.Module, blocks: str, refused: str) -> Iterator[str]:
    """Iterate over the paths of the modules with tensors around a list of blocks, the largest that hold none of it.

    Raises:
        ModelError: if a tensor around the blocks is in no module that could be copied without them.
    """
    place, around = "", model
    for part in blocks.split("."):
        for name, child in around.named_children():
            if name != part and child.state_dict():
                yield f"{place}{name}"
        kept = [*around._parameters, *(set(around._buffers) - around._non_persistent_buffers_set)]
        if kept:
            raise ModelError(f"{refused}: it keeps the tensor '{place}{kept[0]}' beside its modules.")
        place, around = f"{place}{part}.", around.get_submodule(part)
