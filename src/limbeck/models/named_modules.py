"""Models that are no `transformers` models: their blocks are named as modules, so that a `StreamTap` can read them.

A model of your own is any `nn.Module` that is called with `input_ids` and `attention_mask`, `[B, L]`. You name its
blocks by a *pattern* such as `encoder.layers.{i}`. What the tap needs to know beside it is measured by a run on two
short rows. Streams inside of attention cannot be read.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput

from limbeck.errors import ModelError, shorten_error, suggestion
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.family_table import Family

STREAMS = ("hidden", "last_hidden", "logits")
"""Names of what can be named: the blocks, and the modules whose outputs are the last hidden state and the scores."""
_ALWAYS_READ = ("embedding", "hidden", "cls", "pooled", "vector")
"""Streams that are read of any model whose blocks are named."""
_NUMBER = "{i}"
"""The part of a pattern that stands for the number of a block."""
_PATH_OF_BLOCKS = "blocks"
"""The path at which the tap finds the blocks."""
_ROWS = 2
_TOKENS = 5
"""Rows and tokens of the measuring run; they differ, so that their axes can be told apart."""

KeyT = TypeVar("KeyT", int, str)


class NamedModulesConfig(PreTrainedConfig):
    """The numbers of a model of your own, under the names that the table of families reads, and its row of it."""

    model_type = "named_modules"


@dataclass
class NamedOutput(ModelOutput):
    """The output of a model of your own.

    Attributes:
        last_hidden_state: `[B, L, H]`.
        hidden_states: Those of all layers, where they are asked for; the input of the first block is the first.
        logits: The scores, where they are named.
    """

    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    logits: Tensor | None = None


class NamedModules(PreTrainedModel):
    """A model of your own, in the form that a `StreamTap` reads.

    Args:
        module: The model. It is called with `input_ids` and `attention_mask` by name.
        streams: Module paths by name: `hidden`, the pattern of the blocks; and where there are such modules
            `last_hidden`, a norm behind the last block, and `logits`, the head.
        title: The model's name in messages.

    Attributes:
        readable: Names of the streams that can be read.

    Raises:
        ModelError: one line, for unknown names and modules, and for a model that cannot be read in this way.

    Example:
        >>> NamedModules(model, {"hidden": "encoder.layers.{i}", "last_hidden": "encoder.norm"}, "the student")
    """

    config_class = NamedModulesConfig

    def __init__(self, module: nn.Module, streams: Mapping[str, str], title: str) -> None:
        _check_names(streams, title)
        blocks = _find_blocks(module, streams["hidden"], title)
        # The last block gives the last hidden state, unless a norm behind it is named.
        outputs = {"last_hidden": blocks[-1]}
        for name in ("last_hidden", "logits"):
            if name in streams:
                outputs[name] = _find_module(module, streams[name], title)
        measured = _measure(module, blocks, outputs, title)

        config = NamedModulesConfig(
            num_hidden_layers=len(blocks),
            hidden_size=measured.width,
            # Attention is not read. With one head of the whole width no number of heads is claimed.
            num_attention_heads=1,
            intermediate_size=measured.width,
            vocab_size=measured.scores,
        )
        # It takes the place of a row of the table of families, see `family_of`.
        config.own_row = Family(
            model_type=config.model_type, blocks=_PATH_OF_BLOCKS, embeddings=(), returned=measured.tuple_length
        )
        super().__init__(config)
        self.module = module
        parameters = inspect.signature(module.forward).parameters
        self._input_names = frozenset(parameters)
        self._takes_any_input = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        # These modules are parts of `module`. In tuples PyTorch does not register them a second time.
        self._named_blocks = tuple(blocks)
        self._named_outputs = tuple(outputs.items())
        self.readable: tuple[str, ...] = _ALWAYS_READ
        if "logits" in streams:
            self.readable = (*_ALWAYS_READ, "logits")

    def get_submodule(self, target: str) -> nn.Module:
        """Return a module by its path; the list of blocks is at `blocks`, wherever the model itself has them."""
        if target == _PATH_OF_BLOCKS:
            return nn.ModuleList(self._named_blocks)
        return super().get_submodule(target)

    def get_input_embeddings(self) -> Any:
        """Return None: the table of word embeddings is not known."""
        return None

    def get_output_embeddings(self) -> Any:
        """Return None: the output layer is not known, so scores are made by the model itself."""
        return None

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, output_hidden_states: bool = False, **inputs: Tensor
    ) -> NamedOutput:
        """Run the model.

        Args:
            input_ids: `[B, L]`.
            attention_mask: `[B, L]`.
            output_hidden_states: Whether to return the hidden states of all layers.
            **inputs: Further inputs, by name; the model gets those that its forward has.
        """
        outputs: dict[str, Tensor] = {}
        state_by_layer: dict[int, Tensor] = {}
        handles = []
        if output_hidden_states:
            first_block = self._named_blocks[0]
            handles.append(
                first_block.register_forward_pre_hook(partial(_keep_input, state_by_layer), with_kwargs=True)
            )
            for layer, block in enumerate(self._named_blocks, start=1):
                handles.append(block.register_forward_hook(partial(_keep_output, state_by_layer, layer)))
        for name, module in self._named_outputs:
            handles.append(module.register_forward_hook(partial(_keep_output, outputs, name)))
        try:
            with _without_fast_path():
                self.module(input_ids=input_ids, attention_mask=attention_mask, **self._select_inputs(inputs))
        finally:
            for handle in handles:
                handle.remove()

        last_hidden = outputs["last_hidden"]
        hidden_states = None
        if output_hidden_states:
            states_below_last = [state_by_layer[layer] for layer in range(len(self._named_blocks))]
            hidden_states = (*states_below_last, last_hidden)
        return NamedOutput(last_hidden, hidden_states, outputs.get("logits"))

    def _select_inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the inputs that the model takes; tokenizers give segments to models that have none."""
        if self._takes_any_input:
            return dict(inputs)
        return {name: value for name, value in inputs.items() if name in self._input_names}


@dataclass(frozen=True)
class _Measured:
    """The numbers of a model that a run on two short rows gives.

    Attributes:
        width: Width of the hidden states.
        tuple_length: Length of the tuple that a block returns; 0 where it returns hidden states alone.
        scores: Width of the scores; 1 without any.
    """

    width: int
    tuple_length: int
    scores: int


def _check_names(streams: Mapping[str, str], title: str) -> None:
    """Refuse unknown streams, paths that are no text, and a mapping without blocks."""
    for name, path in streams.items():
        if name not in STREAMS:
            raise ModelError(f"streams: '{name}' cannot be named.{suggestion(name, STREAMS)}")
        if not isinstance(path, str):
            raise ModelError(f"streams: '{name}' must be text, the path of a module, not {type(path).__name__}.")
    if "hidden" not in streams:
        raise ModelError(
            f"streams: the layers (blocks) of {title} are not named; give a pattern for their paths, such as "
            '{"hidden": "encoder.layers.{i}"}.'
        )


def _modules_by_path(module: nn.Module) -> dict[str, nn.Module]:
    """All modules by path; one that stands at several paths is there for each of them."""
    return dict(module.named_modules(remove_duplicate=False))


def _find_module(module: nn.Module, path: str, title: str) -> nn.Module:
    """Return the module at a path."""
    modules = _modules_by_path(module)
    if path not in modules:
        raise ModelError(f"streams: {title} has no module '{path}'.{_nearest_path(path, modules)}")
    return modules[path]


def _find_blocks(module: nn.Module, pattern: str, title: str) -> list[nn.Module]:
    """Return the blocks that a pattern names, in order; they are counted from 0, or from 1 where there is no 0."""
    if pattern.count(_NUMBER) != 1:
        raise ModelError(
            f"streams: 'hidden' is '{pattern}', but a pattern needs {{i}} exactly once, in the place of the "
            "layer's number, as in encoder.layers.{i}."
        )
    modules = _modules_by_path(module)
    number = 0
    if pattern.replace(_NUMBER, "0") not in modules:
        number = 1
    blocks = []
    while pattern.replace(_NUMBER, str(number)) in modules:
        blocks.append(modules[pattern.replace(_NUMBER, str(number))])
        number += 1
    if not blocks:
        first = pattern.replace(_NUMBER, "0")
        raise ModelError(f"streams: {title} has no module '{first}'.{_nearest_path(first, modules)}")
    if len(set(blocks)) < len(blocks):
        raise ModelError(
            f"streams: a module of {title} stands at several places of '{pattern}', so its layers cannot be told "
            "apart; give each layer a module of its own."
        )
    return blocks


def _nearest_path(path: str, modules: Mapping[str, nn.Module]) -> str:
    """Return the end of an error line with the nearest path, or with the model's own parts where none is near."""
    paths = [name for name in modules if name]
    hint = suggestion(path, paths).partition(" Known: ")[0]
    if hint:
        return hint
    parts = [name for name in paths if "." not in name]
    return f" Its parts: {', '.join(parts)}."


@torch.no_grad()
def _measure(module: nn.Module, blocks: list[nn.Module], outputs: Mapping[str, nn.Module], title: str) -> _Measured:
    """Run a model on two short rows, and return its numbers.

    Args:
        module: The model.
        blocks: Its blocks in order.
        outputs: The modules whose outputs are the last hidden state and the scores, by stream.
        title: The model's name in messages.

    Raises:
        ModelError: for a model that does not run so, or whose blocks a tap cannot read.
    """
    run = _observe_run(module, blocks, outputs, title)
    if [block_run.number for block_run in run.block_runs] != list(range(len(blocks))):
        raise ModelError(
            f"{title} does not run each of the named blocks once, in the order of their numbers; name the modules "
            "of its layers."
        )
    first_run = run.block_runs[0]
    for block_run in run.block_runs:
        _check_block(block_run, first_run, title)
    for name in outputs:
        if name not in run.outputs:
            raise ModelError(
                f"streams: the module of '{name}' of {title} gave no tensor; name a module that runs and returns a "
                "tensor."
            )
    last_hidden = run.outputs["last_hidden"]
    if last_hidden.shape != first_run.hidden.shape:
        raise ModelError(
            f"streams: 'last_hidden' of {title} is {list(last_hidden.shape)}, but its blocks give "
            f"{list(first_run.hidden.shape)}, and both must be equal; name a norm behind the last block, or leave "
            "'last_hidden' out."
        )
    scores = 1
    if "logits" in run.outputs:
        scores = int(run.outputs["logits"].shape[-1])
    return _Measured(width=int(first_run.hidden.shape[-1]), tuple_length=first_run.tuple_length, scores=scores)


@dataclass(frozen=True)
class _ObservedRun:
    """What hooks observed of a run on two short rows.

    Attributes:
        block_runs: The runs of blocks, in the order in which they ran.
        outputs: The outputs of named modules that gave a tensor, by stream.
    """

    block_runs: list[_BlockRun]
    outputs: dict[str, Tensor]


def _observe_run(
    module: nn.Module, blocks: list[nn.Module], outputs: Mapping[str, nn.Module], title: str
) -> _ObservedRun:
    """Run a model on two short rows with hooks; arguments as of `_measure`."""
    runs: list[_BlockRun] = []
    tensors: dict[str, Tensor] = {}
    handles = []
    for number, block in enumerate(blocks):
        handles.append(block.register_forward_hook(partial(_note_run, runs, number), with_kwargs=True))
    for name, output in outputs.items():
        handles.append(output.register_forward_hook(partial(_keep_output, tensors, name)))
    # A model without parameters runs on the CPU.
    parameter = next(module.parameters(), torch.zeros(()))
    ids = torch.zeros(_ROWS, _TOKENS, dtype=torch.long, device=parameter.device)
    try:
        with evaluation_mode(module), _without_fast_path():
            module(input_ids=ids, attention_mask=torch.ones_like(ids))
    except Exception as error:
        raise ModelError(
            f"{title} does not run on input_ids and attention_mask of [{_ROWS}, {_TOKENS}] "
            f"({shorten_error(error)}), but limbeck passes both by these names; wrap it in a module whose forward "
            "takes them."
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return _ObservedRun(runs, tensors)


@dataclass(frozen=True)
class _BlockRun:
    """A run of a block.

    Attributes:
        number: The block's number, from 0.
        has_input: Whether its input is its first argument, or called `hidden_states`, where a tap finds it.
        output: What it returned.
        tuple_length: Length of the tuple that it returned; 0 for a tensor.
    """

    number: int
    has_input: bool
    output: Any
    tuple_length: int

    @property
    def hidden(self) -> Any:
        """The hidden states that it returned."""
        return self.output[0] if self.tuple_length else self.output


def _note_run(
    runs: list[_BlockRun], number: int, block: nn.Module, arguments: Any, keywords: Mapping[str, Any], output: Any
) -> None:
    """Add a run of a block to a list."""
    tuple_length = len(output) if isinstance(output, tuple) else 0
    has_input = bool(arguments) or "hidden_states" in keywords
    runs.append(_BlockRun(number, has_input, output, tuple_length))


def _check_block(run: _BlockRun, first: _BlockRun, title: str) -> None:
    """Refuse a block that a tap cannot read.

    Args:
        run: The block's run.
        first: The run of the first block.
        title: The model's name in messages.
    """
    name = f"Block {run.number} of {title}"
    if not run.has_input:
        raise ModelError(
            f"{name} gets its input by a keyword other than hidden_states; pass the input as the first argument."
        )
    if not isinstance(run.hidden, Tensor):
        raise ModelError(f"{name} returns {type(run.hidden).__name__}, not hidden states; return a tensor or a tuple.")
    shape = list(run.hidden.shape)
    if len(shape) != 3 or shape[:2] != [_ROWS, _TOKENS]:
        raise ModelError(
            f"{name} returns {shape} for {_ROWS} rows of {_TOKENS} tokens, but the shape must be [{_ROWS}, "
            f"{_TOKENS}, width]; create modules of torch.nn with batch_first=True."
        )
    if run.hidden.shape != first.hidden.shape or run.tuple_length != first.tuple_length:
        raise ModelError(
            f"{name} returns {shape}, but the first block returns {list(first.hidden.shape)}; all blocks must "
            "return the same shape."
        )


def _keep_output(tensors: dict[KeyT, Tensor], key: KeyT, module: nn.Module, arguments: Any, output: Any) -> None:
    """Keep the tensor that a module returns, or the first of its tuple; any other output is left out."""
    if isinstance(output, tuple):
        output = output[0]
    if isinstance(output, Tensor):
        tensors[key] = output


def _keep_input(state_by_layer: dict[int, Tensor], block: nn.Module, arguments: Any, keywords: Any) -> None:
    """Keep the input of the first block, which is the hidden state of layer 0."""
    state_by_layer[0] = arguments[0] if arguments else keywords["hidden_states"]


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Keep PyTorch's own encoder from nested tensors, in which blocks would return no `[B, L, H]`."""
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)
