"""Finding what limbeck needs to know of an architecture without a row in the table of families.

For a family outside of the table, each configuration is examined once, by a *small model*: one of its class with the
configuration's widths, three blocks, a small vocabulary and random weights. It runs on one short row, and hooks observe
which list of modules runs in order, the inputs and outputs of its blocks, and the rows of the tables of embeddings that
are read. A second run shows whether a token sees those after it. Modules are found by what they do, never by their
names; only the configuration's fields have standard names.
"""

from __future__ import annotations

import inspect
import json
import logging
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.utils import logging as transformers_logging

from limbeck.errors import ModelError, shorten_error
from limbeck.models.family_table import Family, Fields, unlisted_row
from limbeck.models.layer_lists import fit_layer_lists
from limbeck.models.pooler import pooler_option

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SUCH_AS = "such as bert, roberta, deberta-v2, mpnet or modernbert"
"""The end of messages that refuse a model: encoders that can be taken instead."""

_NUMBERS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
"""The standard names of the numbers of a model: layers, hidden width, heads and words."""
_FFN_WIDTHS = ("intermediate_size", "ffn_dim", "n_inner", "d_inner", "d_ff", "inner_dim", "hidden_dim")
"""Names of the feed-forward width, for which there is no standard."""
_FETCH_KERNELS = ("mra", "rwkv", "yoso")
"""Families for which transformers fetches compiled code from the Hub."""

_SMALL_DEPTH = 3
"""Blocks of the small model."""
_TOKENS = 6
"""Tokens of the row that it reads."""
_VOCABULARY = 64
"""Most entries of its vocabulary."""
_MOST_NUMBERS = 1_000_000_000
"""Most numbers that the small model may hold."""
_LOOKS_AHEAD = 1e-5
"""Change of a token's output by a later token, as a share of the largest output, from which a token sees later ones."""
_LEFT_OUT = {"dtype", "torch_dtype", "architectures", "id2label", "label2id", "name_or_path", "transformers_version"}
"""Fields of no consequence for the structure. Without them, more configurations share a small model."""


@lru_cache(maxsize=64)
def unlisted_family(model_type: str) -> Family:
    """Return the facts about a family outside of the table that its classes tell: the names of its numbers.

    `transformers` has standard names for the numbers of a model, such as `hidden_size`. A configuration's class with
    other names maps the standard ones to them (`attribute_map`). The family's modules are found by `find_family`.

    Args:
        model_type: The family, one that `transformers` knows.

    Raises:
        ModelError: for a family whose models do not read text alone, or that lacks the standard names.
    """
    refusal = f"The family '{model_type}' cannot be read"
    way_out = f"choose a text encoder, {SUCH_AS}."
    config_class = CONFIG_MAPPING[model_type]
    problem = _problem_of_class(model_type)
    if problem is not None:
        raise ModelError(f"{refusal}: {problem}; {way_out}")

    # The values of all fields where nothing is set.
    defaults = vars(config_class())
    if defaults.get("is_encoder_decoder"):
        raise ModelError(f"{refusal}: it is an encoder with a decoder; {way_out}")
    family_names = config_class.attribute_map
    layers, hidden, heads, vocabulary = (family_names.get(name, name) for name in _NUMBERS)
    missing = [name for name in (layers, hidden, heads, vocabulary) if name not in defaults]
    if missing:
        raise ModelError(
            f"{refusal}: its configuration lacks {', '.join(missing)}, from which limbeck would read the size of a "
            f"model; {way_out}"
        )

    ffn_names = [family_names.get(name, name) for name in _FFN_WIDTHS]
    known_ffn_names = [name for name in ffn_names if name in defaults]
    # A family without a known field for the feed-forward width gets the first name, though its configurations lack it.
    ffn = known_ffn_names[0] if known_ffn_names else _FFN_WIDTHS[0]
    dropouts = []
    for name, value in defaults.items():
        # True and false are numbers in Python, but no rates.
        if type(value) in (int, float) and _is_dropout(name):
            dropouts.append(name)
    # What limbeck knows of the family beside the names of its numbers.
    known = unlisted_row(model_type)
    fields = Fields(layers, hidden, heads, ffn, embedding=known.fields.embedding, dropouts=tuple(dropouts))
    return replace(known, model_type=model_type, fields=fields)


def _problem_of_class(model_type: str) -> str | None:
    """Return the reason why a family's classes cannot be read; None where they can."""
    from transformers import MODEL_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    model_class: Any = MODEL_MAPPING.get(config_class, None)
    if not inspect.isclass(model_class):
        return "transformers has no Transformer of it"
    if config_class.sub_configs:
        return f"it is made of several models ({', '.join(config_class.sub_configs)})"
    main_input = getattr(model_class, "main_input_name", None)
    if main_input != "input_ids":
        return f"it reads {main_input}, not tokens"
    if model_type in _FETCH_KERNELS:
        return "transformers fetches compiled code from the Hub for it, and limbeck runs none from there"
    return None


def _is_dropout(field: str) -> bool:
    """Whether a field is a rate of dropout between the embeddings and the last block."""
    is_of_head = field.startswith(("classifier", "summary"))
    return not is_of_head and ("dropout" in field or field.endswith("pdrop"))


def find_family(config: PreTrainedConfig) -> Family:
    """Find the names and the structure of a family that is not in limbeck's table, by running a small model of it.

    This takes some 0.1 s for the widths of BERT-base, once for each configuration: the result is cached.

    Args:
        config: The configuration; its depth and its vocabulary do not count.

    Raises:
        ModelError: for a family that cannot be read, see `unlisted_family`, a model that does not run, or one that has
            no list of blocks that run one after the other.
    """
    model_type = str(config.model_type)
    layers_field = unlisted_family(model_type).fields.layers
    vocabulary_size = min(_VOCABULARY, int(config.vocab_size))

    # The configuration of the small model: few layers, and few words.
    small_values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    all_layers = int(small_values[layers_field])
    # Cuts, in place, the lists that have a value for each layer.
    fit_layer_lists(small_values, all_layers, range(_SMALL_DEPTH))
    small_values[layers_field] = _SMALL_DEPTH
    small_values["vocab_size"] = vocabulary_size
    for key in _LEFT_OUT:
        small_values.pop(key, None)
    # Ids of special tokens must be within the small vocabulary.
    for key, value in small_values.items():
        if key.endswith("token_id"):
            small_values[key] = _small_token_id(key, value, vocabulary_size)
    # The result is cached by this text, which is the same for equal configurations.
    return _find_by_small_model(model_type, json.dumps(small_values, sort_keys=True))


def _small_token_id(field: str, token_id: Any, vocabulary_size: int) -> Any:
    """Return the id of a special token in a small vocabulary; one that is too large becomes 0 for padding, else 1."""
    is_in_range = isinstance(token_id, int) and 0 <= token_id < vocabulary_size
    if token_id is None or is_in_range:
        return token_id
    return 0 if field.startswith("pad") else 1


@lru_cache(maxsize=64)
def _find_by_small_model(model_type: str, config_json: str) -> Family:
    """Build and run the small model of a configuration, and return its family.

    Args:
        model_type: The family.
        config_json: The small model's configuration, as text, which the cache can compare.
    """
    from transformers import MODEL_MAPPING

    refusal = f"The family '{model_type}' is not in limbeck's table, and its structure cannot be determined"
    config_class = CONFIG_MAPPING[model_type]
    model_class: Any = MODEL_MAPPING[config_class]
    values = json.loads(config_json)
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.CRITICAL)
    try:
        # The size is checked by a model on the device "meta", whose tensors have no memory.
        with torch.device("meta"):
            empty_model = model_class(config_class(**values))
        numbers = sum(parameter.numel() for parameter in empty_model.parameters())
        if numbers > _MOST_NUMBERS:
            raise ModelError(
                f"{refusal}: {_SMALL_DEPTH} of its blocks hold {numbers:,} numbers; choose a smaller model."
            )

        with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings(action="ignore"):
            torch.default_generator.manual_seed(0)
            options = pooler_option(model_class)
            model = model_class._from_config(config_class(**values), dtype=torch.float32, **options).eval()
            # Some parameters start as zeros, which would hide the effect of what they are multiplied by.
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape), alpha=0.02)
            return _observe_family(model, refusal)
    except ModelError:
        raise
    except Exception as error:  # Each model stumbles in its own way.
        raise ModelError(
            f"{refusal}: a model of it does not run ({shorten_error(error)}); choose another model."
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)


def _observe_family(model: PreTrainedModel, refusal: str) -> Family:
    """Run a small model with hooks, and return the facts about its family that they observe.

    Args:
        model: The small model.
        refusal: The beginning of error messages.
    """
    # The last ids of the vocabulary, since in most models special tokens have the first ones.
    vocabulary_size = model.config.vocab_size
    ids = torch.arange(vocabulary_size - _TOKENS, vocabulary_size).unsqueeze(0)
    observer = _Observer(model)
    output = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    observer.close()

    shape_of_states = (1, _TOKENS, int(model.config.hidden_size))
    path_of_blocks = _path_of_blocks(observer, output, shape_of_states, refusal)
    known_family = unlisted_family(str(model.config.model_type))
    embeddings = []
    extras = []
    for path in _paths_around(model, path_of_blocks, refusal):
        if _holds_any(path, observer.rows):
            # It holds a table whose rows were read.
            embeddings.append(path)
        elif path != known_family.embedding_projection:
            extras.append(path)
    positions = _find_positions(model, observer)
    first_output = observer.calls[path_of_blocks][0].returned
    return replace(
        known_family,
        blocks=path_of_blocks,
        embeddings=tuple(embeddings),
        layout=model.config.model_type,
        extras=tuple(extras),
        causal=_is_causal(model, ids, output),
        padded_positions=positions.are_padded,
        returned=len(first_output) if isinstance(first_output, tuple) else 0,
        positions=positions.path,
        segments=_find_segments(model, observer),
    )


class _Call(NamedTuple):
    """A call of a module in a list of modules.

    Attributes:
        number: The module's number in the list, from 0.
        hidden_states: What it gets as hidden states; None where that cannot be told.
        returned: Its output.
    """

    number: int
    hidden_states: Any
    returned: Any


class _Observer:
    """Watches a run of a small model by hooks.

    Attributes:
        calls: By the path of a list that may be the list of blocks, since it has as many modules, the calls of its
            modules in order.
        rows: By the path of a table of embeddings, the rows that the tokens of the run read.
    """

    def __init__(self, model: nn.Module) -> None:
        # The calls of the modules of each list, and the rows that are read of each table, by their paths.
        self.calls: dict[str, list[_Call]] = {}
        self.rows: dict[str, list[int]] = {}
        self._handles: list[Any] = []
        for path, module in model.named_modules():
            if isinstance(module, nn.Embedding):
                self._handles.append(module.register_forward_pre_hook(partial(self._note_rows, path)))
            # Only a list with a module for each layer can be the list of blocks.
            if isinstance(module, nn.ModuleList) and len(module) == _SMALL_DEPTH:
                self.calls[path] = []
                for number, block in enumerate(module):
                    hook = partial(self._note_call, path, number)
                    self._handles.append(block.register_forward_hook(hook, with_kwargs=True))

    def _note_call(self, path: str, number: int, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Note a call of a module of a list."""
        hidden_states = args[0] if args else kwargs.get("hidden_states")
        self.calls[path].append(_Call(number, hidden_states, returned=output))

    def _note_rows(self, path: str, module: nn.Module, args: Any) -> None:
        """Note the rows that are read of a table, if it is read with a row for each token."""
        if args and isinstance(args[0], Tensor) and args[0].numel() == _TOKENS:
            self.rows[path] = args[0].flatten().tolist()

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()


def _holds_any(path: str, inner: Iterable[str]) -> bool:
    """Whether any of the inner paths is this path, or below it."""
    # The dot behind both keeps `layer1` from being taken for a part of `layer`.
    return any(f"{each}.".startswith(f"{path}.") for each in inner)


def _path_of_blocks(observer: _Observer, output: Tensor, shape: tuple[int, ...], refusal: str) -> str:
    """Return the path of the only list whose modules ran one after the other.

    Args:
        observer: What the run showed.
        output: The model's last hidden state.
        shape: The shape that hidden states have.
        refusal: The beginning of error messages.

    Raises:
        ModelError: for none, several, or a model whose output has another shape.
    """
    in_order = [path for path, calls in observer.calls.items() if _ran_in_order(calls, shape)]
    # A list inside of a block is no list of blocks.
    outermost = []
    for path in in_order:
        is_inside = any(path.startswith(f"{outer}.") for outer in in_order)
        if not is_inside:
            outermost.append(path)
    if len(outermost) != 1 or tuple(output.shape) != shape:
        raise ModelError(
            f"{refusal}: it has {len(outermost)} lists of blocks that run one after the other, but exactly one is "
            "needed; choose another model."
        )
    return outermost[0]


def _ran_in_order(calls: list[_Call], shape: tuple[int, ...]) -> bool:
    """Whether the modules of a list ran one after the other, each from hidden states to hidden states."""
    if [call.number for call in calls] != list(range(_SMALL_DEPTH)):
        return False
    for call in calls:
        returned = call.returned[0] if isinstance(call.returned, tuple) else call.returned
        for states in (call.hidden_states, returned):
            if not isinstance(states, Tensor) or tuple(states.shape) != shape:
                return False
    return True


def _is_causal(model: PreTrainedModel, ids: Tensor, output: Tensor) -> bool:
    """Whether a token sees only its past: another last token changes no output before it.

    Args:
        model: The small model.
        ids: The row, `[1, _TOKENS]`.
        output: The last hidden state of that row, `[1, _TOKENS, width]`.
    """
    # The row consists of `_TOKENS` neighbouring ids, so that this gives a token which it does not have.
    changed_ids = ids.clone()
    changed_ids[0, -1] -= _TOKENS
    changed_output = model(input_ids=changed_ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    change_by_token = (changed_output - output).abs().amax(-1)[0]
    sees_ahead = change_by_token[:-1] > _LOOKS_AHEAD * output.abs().max()
    return not bool(sees_ahead.any())


class _Positions(NamedTuple):
    """The table of positions.

    Attributes:
        path: Its path; None for a family without one.
        are_padded: Whether positions are counted from behind the padding's id.
    """

    path: str | None
    are_padded: bool


def _find_positions(model: PreTrainedModel, observer: _Observer) -> _Positions:
    """Find the table of positions, whose rows the tokens of the run read one after the other.

    The first token reads row 0 or, where positions are counted from behind the padding's id, the row after that. If
    several tables are read so, the first of them is taken.
    """
    padding_id = model.config.pad_token_id
    row_after_padding = padding_id + 1 if isinstance(padding_id, int) else 0
    words = model.get_input_embeddings()
    path_of_positions = None
    are_padded = False
    for path, rows in observer.rows.items():
        if model.get_submodule(path) is words:
            # The ids of the run's tokens are neighbours too.
            continue
        first_row = rows[0]
        counts_up = rows == list(range(first_row, first_row + _TOKENS))
        if counts_up and first_row in (0, row_after_padding):
            if path_of_positions is None:
                path_of_positions = path
            if first_row > 0:
                are_padded = True
    return _Positions(path_of_positions, are_padded)


def _find_segments(model: PreTrainedModel, observer: _Observer) -> str | None:
    """Return the path of the table of segments: all tokens read its row 0, and `type_vocab_size` is its length."""
    count = getattr(model.config, "type_vocab_size", 0)
    for path, rows in observer.rows.items():
        reads_first_row_only = not any(rows)
        if reads_first_row_only and model.get_submodule(path).num_embeddings == count:
            return path
    return None


def _paths_around(model: nn.Module, path_of_blocks: str, refusal: str) -> Iterator[str]:
    """Yield the paths of the modules with tensors around a list of blocks.

    Each path is that of the largest module which does not hold the list.

    Args:
        model: The small model.
        path_of_blocks: The list's path.
        refusal: The beginning of error messages.

    Raises:
        ModelError: if a tensor around the blocks is in no module that could be copied without them.
    """
    # The modules on the way from the model down to the list hold it. Those beside the way are yielded.
    prefix = ""
    holder = model
    for name_on_way in path_of_blocks.split("."):
        for name, child in holder.named_children():
            if name != name_on_way and child.state_dict():
                yield f"{prefix}{name}"
        # The keys without a dot are the module's own parameters and buffers, without the buffers that are not saved.
        own_tensors = [key for key in holder.state_dict() if "." not in key]
        if own_tensors:
            raise ModelError(
                f"{refusal}: it keeps the tensor '{prefix}{own_tensors[0]}' outside of its modules, where limbeck "
                "would not copy it; choose another model."
            )
        prefix += f"{name_on_way}."
        holder = holder.get_submodule(name_on_way)
