"""Activations of a teacher's blocks on random tokens, which can decide how a narrower student starts.

Weights alone show which directions the words span, but not which of them the layers use. An example is
all-MiniLM-L6-v2, whose hidden states were measured after the embeddings and after layers 1, 3 and 6. The 192 leading
directions of its word embeddings carry 57 to 72 % of these states, and the 192 leading directions of the states
themselves 79 to 92 %. Random tokens will do, since text shows nearly the same directions.

T is the teacher's hidden width, F the number of its feed-forward neurons in a block, and x~ a hidden state with a one
behind it, `[T + 1]`. The *moment* C of hidden states is the mean of x~ x~ᵀ over tokens, `[T + 1, T + 1]`; its last row
and column hold the mean hidden state and 1.

Source: hidden states' principal directions as a basis: SliceGPT (arXiv 2401.15024, section 3.3), there for pre-norm
decoders and on text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from limbeck.errors import ModelError
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.families import blocks, shape_of
from limbeck.models.family_table import BlockRoles, row_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROWS = 64
"""Rows of random tokens."""
LENGTH = 32
"""Tokens of each row."""
_BATCH = 16
"""Rows that run at once."""


class Neurons(NamedTuple):
    """Mean and variance of each feed-forward neuron, `[F]`."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True)
class BlockActivations:
    """Moments of a block on random tokens, in float64.

    Attributes:
        inputs: C of its input, `[T + 1, T + 1]`.
        norms: C of the output of each of its norms, by the norm's path in the block; the last is the block's output.
        neurons: The mean and the variance of its feed-forward neurons.
    """

    inputs: Tensor
    norms: Mapping[str, Tensor]
    neurons: Neurons

    @property
    def output(self) -> Tensor:
        """C of the block's output, `[T + 1, T + 1]`: that of its last norm."""
        return list(self.norms.values())[-1]


@torch.no_grad()
def measure(source: PreTrainedModel, layers: Sequence[int], seed: int) -> dict[int, BlockActivations]:
    """Run a model on random tokens, and measure some of its blocks.

    Args:
        source: The base model, of a family whose row of the table names the roles of its maps; left as it is.
        layers: Layers to measure, counted from 1. Layer 1 is always added, since its input is the embeddings' output.
        seed: Decides the tokens.

    Returns:
        The moments of each measured layer, by its number.

    Raises:
        ModelError: for hidden states that are zero or not finite.
    """
    roles = row_of(source.config.model_type).roles
    assert roles is not None
    source_blocks = blocks(source)
    tokens = _random_tokens(source, seed).to(source.device)

    observers: dict[int, _BlockObserver] = {}
    try:
        for layer in sorted({1, *layers}):
            observers[layer] = _BlockObserver(source_blocks[layer - 1], roles)
        with evaluation_mode(source):
            for rows in tokens.split(_BATCH):
                source(input_ids=rows, attention_mask=torch.ones_like(rows))
    finally:
        for observer in observers.values():
            observer.close()

    measured = {layer: observer.activations() for layer, observer in observers.items()}
    for layer, activations in measured.items():
        moments = (activations.inputs, *activations.norms.values())
        if not all(_has_signal(moment) for moment in moments):
            raise ModelError(
                f"The teacher's layer {layer} gives only zeros, or numbers that are not finite, on random tokens, "
                "so its activations say nothing about what to keep; set narrow_by: weights."
            )
    return measured


def _random_tokens(source: PreTrainedModel, seed: int) -> Tensor:
    """Draw rows of tokens, none of which is padding: int64 `[ROWS, L]`."""
    shape = shape_of(source.config)
    length = min(LENGTH, shape.positions or LENGTH)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(shape.vocabulary, (ROWS, length), generator=generator)
    padding_id = source.config.pad_token_id
    if padding_id is not None:
        next_id = (padding_id + 1) % shape.vocabulary
        tokens[tokens == padding_id] = next_id
    return tokens


def _has_signal(moment: Tensor) -> bool:
    """Whether a moment `[T + 1, T + 1]` is finite, and its hidden states are not all zero."""
    if not moment.isfinite().all():
        return False
    # Without the last row and column, which belong to the one, the trace is the mean square length of the states.
    return bool(moment[:-1, :-1].trace() > 0)


class _BlockObserver:
    """Hooks on a block that add up its moments while the model runs.

    Args:
        block: The block.
        roles: The paths of its maps and norms.
    """

    def __init__(self, block: nn.Module, roles: BlockRoles) -> None:
        self._inputs = _Moment()
        self._neurons = _NeuronMoments()
        self._norms = {name: _Moment() for name in roles.norms}
        # The query's map reads the block's input, and the second feed-forward map reads the neurons.
        self._hooks = [
            block.get_submodule(roles.query).register_forward_pre_hook(_add_input(self._inputs)),
            block.get_submodule(roles.ffn_out).register_forward_pre_hook(_add_input(self._neurons)),
        ]
        for name, moment in self._norms.items():
            self._hooks.append(block.get_submodule(name).register_forward_hook(_add_output(moment)))

    def activations(self) -> BlockActivations:
        """Return the moments of all that has run so far."""
        norms = {name: moment.mean for name, moment in self._norms.items()}
        return BlockActivations(self._inputs.mean, norms, self._neurons.mean)

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()


def _add_input(moment: _Moment | _NeuronMoments) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    """Return a hook before a module that adds its input to a moment."""
    return lambda _module, inputs: moment.add(inputs[0])


def _add_output(moment: _Moment) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
    """Return a hook after a module that adds its output to a moment."""
    return lambda _module, _inputs, output: moment.add(output)


class _Moment:
    """The mean of x~ x~ᵀ over the tokens of all batches."""

    def __init__(self) -> None:
        self._total: Tensor | None = None
        self._count = 0

    def add(self, states: Tensor) -> None:
        """Add hidden states `[..., T]`."""
        rows = states.detach().flatten(0, -2).double()
        # [rows, T + 1].
        rows_with_one = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
        product = rows_with_one.T @ rows_with_one
        self._total = product if self._total is None else self._total + product
        self._count += len(rows)

    @property
    def mean(self) -> Tensor:
        """C, `[T + 1, T + 1]`."""
        assert self._total is not None
        return self._total / self._count


class _NeuronMoments:
    """The mean and variance of neurons over the tokens of all batches."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._squares: Tensor | None = None
        self._count = 0

    def add(self, activations: Tensor) -> None:
        """Add activations `[..., F]`."""
        rows = activations.detach().flatten(0, -2).double()
        total = rows.sum(0)
        squares = rows.square().sum(0)
        self._sum = total if self._sum is None else self._sum + total
        self._squares = squares if self._squares is None else self._squares + squares
        self._count += len(rows)

    @property
    def mean(self) -> Neurons:
        """Mean and variance of each neuron."""
        assert self._sum is not None
        assert self._squares is not None
        mean = self._sum / self._count
        variance = self._squares / self._count - mean.square()
        # Rounding must not make a variance negative.
        return Neurons(mean, variance.clamp(min=0))
