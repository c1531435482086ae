"""Verification of a tap on a model of a family outside of the table: its streams against a run without a tap.

A *tap* reads streams (tensors at layers) out of a running model, see `taps.py`. Of a family outside of the table
nothing but its structure is known, see `structure.py`. So the model runs on two short rows before a tap changes it,
with hooks on all its maps and norms, and the tap's streams must be found in that run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from limbeck.errors import ModelError
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.families import blocks, depth, shape_of
from limbeck.models.streams import OF_ATTENTION, StreamKey

_TOKENS = 8
"""Tokens of each of the two rows."""
_STRIDE = 7919
"""A prime, by whose multiples the tokens spread over the vocabulary."""
_FULL_TOLERANCE = 1e-4
"""Share of a tensor's largest number within which two ways of computing it agree, in float32 and float64."""
_HALF_TOLERANCE = 0.05
"""The same in half precision."""
_DIRECTION_FACTOR = 10
"""Directions, which are scaled to length 1, may differ by this many times the tolerance, since scaling rounds too."""


class WholeRun(NamedTuple):
    """The run of a model without a tap on two short rows.

    Attributes:
        input_ids: The rows, `[2, _TOKENS]`.
        hidden_states: Of each layer, the embedding output first: `[2, _TOKENS, H]`.
        inputs: Of each block, the inputs of its modules with weights, for the first row.
        outputs: Of each block, their outputs.
    """

    input_ids: Tensor
    hidden_states: list[Tensor]
    inputs: list[list[Tensor]]
    outputs: list[list[Tensor]]


@torch.no_grad()
def run_whole(base: PreTrainedModel) -> WholeRun:
    """Run a base model without a tap.

    Raises:
        ModelError: for a model that does not give a hidden state for each of its layers.
    """
    # Two rows of different tokens, spread over the vocabulary.
    vocabulary = shape_of(base.config).vocabulary
    numbers = torch.arange(2 * _TOKENS, device=base.device).view(2, _TOKENS)
    input_ids = numbers * _STRIDE % vocabulary

    # Hooks fill the lists of each block while the model runs.
    inputs: list[list[Tensor]] = []
    outputs: list[list[Tensor]] = []
    handles = []
    for block in blocks(base):
        inputs_of_block: list[Tensor] = []
        outputs_of_block: list[Tensor] = []
        inputs.append(inputs_of_block)
        outputs.append(outputs_of_block)
        hook = partial(_note_first_row, inputs_of_block, outputs_of_block)
        for module in block.modules():
            # A norm without weights has the names of its parameters all the same, with None as their values. Torch's
            # public methods pass over these, and its private dictionaries have them.
            is_map_or_norm = module._parameters and not module._modules
            if is_map_or_norm:
                handles.append(module.register_forward_hook(hook))
    with evaluation_mode(base):
        output = base(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), output_hidden_states=True)
    for handle in handles:
        handle.remove()

    hidden_states = list(getattr(output, "hidden_states", None) or ())
    if len(hidden_states) != depth(base.config) + 1:
        raise ModelError(
            f"'{base.config.model_type}' has {depth(base.config)} layers and gives {len(hidden_states)} hidden "
            "states by output_hidden_states, so they cannot be matched to its layers; choose another model."
        )
    # Some families list the last hidden state as it is before their final norm.
    hidden_states[-1] = output.last_hidden_state
    return WholeRun(input_ids, hidden_states, inputs, outputs)


def _note_first_row(inputs: list[Tensor], outputs: list[Tensor], module: nn.Module, args: Any, output: Any) -> None:
    """Add what a module of a block is given for the first row to one list, and what it returns to the other."""
    if args and _is_of_rows(args[0]):
        inputs.append(args[0][0])
    if _is_of_rows(output):
        outputs.append(output[0])


def _is_of_rows(value: Any) -> bool:
    """Whether a value is a tensor `[B, …, width]`."""
    return isinstance(value, Tensor) and value.dim() > 2


def verify_streams(base: PreTrainedModel, streams: Mapping[StreamKey, Tensor], whole: WholeRun) -> None:
    """Refuse a model if one of the tap's streams is not found in a run without a tap.

    Hidden states are compared with `output_hidden_states`. The streams of attention have no name outside of their
    block, so each head's vector must be among the outputs of the block's maps and norms. For query and key only the
    first token is compared, where a rotary embedding changes nothing. The context must be among the inputs of the
    block's maps.

    Args:
        base: The base model.
        streams: The tap's, on the rows of the run.
        whole: The run without a tap.

    Raises:
        ModelError: for the first stream that differs.
    """
    for key in sorted(streams):
        if key.name in ("embedding", "hidden", "cls"):
            _verify_states(base, key, streams[key], whole)
        elif key.name in OF_ATTENTION:
            _verify_attention(base, key, streams[key], whole)


def _verify_states(base: PreTrainedModel, key: StreamKey, stream: Tensor, whole: WholeRun) -> None:
    """Refuse hidden states, or vectors of the first token, that are not those of the whole run."""
    expected = whole.hidden_states[key.layer]
    if key.name == "cls":
        expected = expected[:, 0]
    if not _are_close(stream, expected):
        raise ModelError(
            f"Layer {key.layer} of '{base.config.model_type}' gives hidden states that differ from its "
            "output_hidden_states, because the model changes them between its blocks; choose other layers."
        )


def _verify_attention(base: PreTrainedModel, key: StreamKey, stream: Tensor, whole: WholeRun) -> None:
    """Refuse a stream of attention whose vectors are not among those of the block's maps."""
    block = key.layer - 1
    # The output map reads the context; a map or norm returns any other stream.
    vectors = whole.inputs[block] if key.name == "context" else whole.outputs[block]
    # A rotary embedding turns queries and keys by their position, which is 0 for the first token alone.
    token_count = 1 if key.name in ("query", "key") else _TOKENS
    first_row = stream[0, :token_count]
    if not _are_among(first_row, vectors, shape_of(base.config).head_size):
        raise ModelError(
            f"The {key.name} of layer {key.layer} of '{base.config.model_type}' is not the output of any map of "
            "that block, so relations of these vectors would mean something else; use a method on hidden states."
        )


def _are_close(stream: Tensor, expected: Tensor) -> bool:
    """Whether two ways of computing a tensor agree."""
    if stream.shape != expected.shape:
        return False
    largest_error = (stream - expected).abs().max()
    allowed_error = _tolerance(stream.dtype) * expected.abs().max()
    return bool(largest_error <= allowed_error)


def _are_among(stream: Tensor, tensors: list[Tensor], width: int) -> bool:
    """Whether each head's vector has the direction of one of the vectors of some tensors.

    Lengths are not compared, since a family may scale queries or keys after the map.

    Args:
        stream: `[L, heads * width]`.
        tensors: Tensors of any shapes, whose last axis may hold several heads.
        width: The width of a head.
    """
    if stream.shape[-1] % width:
        return False
    # [vectors, width] of each tensor that can be cut into vectors of a head's width.
    vectors = [tensor.double().reshape(-1, width) for tensor in tensors if tensor.numel() % width == 0]
    if not vectors:
        return False
    stream_directions = F.normalize(stream.double().reshape(-1, width), dim=-1)
    directions = F.normalize(torch.cat(vectors), dim=-1)
    distances_to_nearest = torch.cdist(stream_directions, directions).amin(1)
    return bool(distances_to_nearest.max() <= _DIRECTION_FACTOR * _tolerance(stream.dtype))


def _tolerance(dtype: torch.dtype) -> float:
    """Return the share of a tensor's largest number within which two ways of computing it agree."""
    if dtype in (torch.float32, torch.float64):
        return _FULL_TOLERANCE
    return _HALF_TOLERANCE
