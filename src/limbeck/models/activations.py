"""Narrowing by a teacher's activations on random tokens: the directions, heads and neurons that carry most of them.

Weights alone say which directions the words span, not which of them the layers use: of all-MiniLM-L6-v2's hidden states
on such tokens, the 192 leading directions of its word embeddings carry 57 to 72 % after the embeddings and layers 1, 3
and 6, as many of the states' own 79 to 92 %. No text is needed: its tokens show nearly the same directions.

Written as in `bases.py`, with x~ for a hidden state with a one behind it, and C = E[x~ x~ᵀ] over tokens.

Source: hidden states' principal directions as a basis: SliceGPT (arXiv 2401.15024, section 3.3), there for pre-norm
decoders and on text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from limbeck.errors import ModelError
from limbeck.models.families import blocks, shape_of
from limbeck.models.family_table import BlockRoles, row_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROWS = 64
"""Rows of random tokens."""
LENGTH = 32
"""Tokens of each row."""
_BATCH = 16
# As a share of the largest eigenvalue of a moment; smaller eigenvalues are raised to it.
_FLOOR = 1e-6


class Neurons(NamedTuple):
    """Mean and variance of each feed-forward neuron, `[F]`."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True)
class BlockActivations:
    """Moments of a block on random tokens, in float64.

    Attributes:
        inputs: C of its input, `[T + 1, T + 1]`.
        norms: C of what each of its norms gives, by its path in the block.
        neurons: Its feed-forward neurons.
    """

    inputs: Tensor
    norms: Mapping[str, Tensor]
    neurons: Neurons


class _Moment:
    """The mean of x~ x~ᵀ over batches."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.count = 0

    def add(self, rows: Tensor) -> None:
        """Add hidden states `[..., T]`."""
        rows = rows.detach().flatten(0, -2).double()
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
        product = rows.T @ rows
        self.total = product if self.total is None else self.total + product
        self.count += len(rows)

    @property
    def mean(self) -> Tensor:
        assert self.total is not None
        return self.total / self.count


class _NeuronMoments:
    """The mean and variance of neurons over batches."""

    def __init__(self) -> None:
        self.sum: Tensor | None = None
        self.squares: Tensor | None = None
        self.count = 0

    def add(self, rows: Tensor) -> None:
        """Add activations `[..., F]`."""
        rows = rows.detach().flatten(0, -2).double()
        total = rows.sum(0)
        squares = rows.square().sum(0)
        self.sum = total if self.sum is None else self.sum + total
        self.squares = squares if self.squares is None else self.squares + squares
        self.count += len(rows)

    @property
    def mean(self) -> Neurons:
        assert self.sum is not None
        assert self.squares is not None
        mean = self.sum / self.count
        variance = self.squares / self.count - mean.square()
        return Neurons(mean, variance.clamp(min=0))


class _BlockObserver:
    """Hooks on a block that sum its moments.

    Args:
        block: The block.
        roles: Which of its modules is which.
    """

    def __init__(self, block: nn.Module, roles: BlockRoles) -> None:
        self._inputs = _Moment()
        self._neurons = _NeuronMoments()
        self._norms = {name: _Moment() for name in roles.norms}
        self._hooks = [
            block.get_submodule(roles.query).register_forward_pre_hook(_add_input(self._inputs)),
            block.get_submodule(roles.ffn_out).register_forward_pre_hook(_add_input(self._neurons)),
        ]
        for name, moment in self._norms.items():
            self._hooks.append(block.get_submodule(name).register_forward_hook(_add_output(moment)))

    def activations(self) -> BlockActivations:
        """Return the moments so far."""
        norms = {name: moment.mean for name, moment in self._norms.items()}
        return BlockActivations(self._inputs.mean, norms, self._neurons.mean)

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()


def _add_input(moment: _Moment | _NeuronMoments) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    return lambda _, inputs: moment.add(inputs[0])


def _add_output(moment: _Moment) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
    return lambda _, __, output: moment.add(output)


@torch.no_grad()
def measure(source: PreTrainedModel, layers: Sequence[int], seed: int) -> dict[int, BlockActivations]:
    """Run a model on random tokens, and measure some of its blocks.

    Args:
        source: The base model, of a family whose maps have roles; left as it is.
        layers: Layers to measure, counted from 1; the first is measured too, for the embeddings' output.
        seed: Decides the tokens.

    Returns:
        Each layer's moments.

    Raises:
        ModelError: for hidden states that are zero or not finite.
    """
    roles = row_of(source.config.model_type).roles
    assert roles is not None
    source_blocks = blocks(source)
    was_training = [module.training for module in source.modules()]
    source.eval()
    observers: dict[int, _BlockObserver] = {}
    try:
        for layer in sorted({1, *layers}):
            observers[layer] = _BlockObserver(source_blocks[layer - 1], roles)
        for rows in _random_tokens(source, seed).to(source.device).split(_BATCH):
            source(input_ids=rows, attention_mask=torch.ones_like(rows))
    finally:
        for module, training in zip(source.modules(), was_training, strict=True):
            module.training = training
        for observer in observers.values():
            observer.close()

    measured = {layer: observer.activations() for layer, observer in observers.items()}
    for layer, activations in measured.items():
        moments = (activations.inputs, *activations.norms.values())
        has_signal = all(moment.isfinite().all() and moment[:-1, :-1].trace() > 0 for moment in moments)
        if not has_signal:
            raise ModelError(
                f"The teacher's layer {layer} gives zeros or numbers that are not finite on random tokens, so nothing "
                "can be told by its activations; set narrow_by: weights."
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
        tokens[tokens == padding_id] = (padding_id + 1) % shape.vocabulary
    return tokens


def leading_directions(blocks: Iterable[BlockActivations], first: BlockActivations, width: int) -> tuple[Tensor, float]:
    """Return the directions that hidden states lie along most, after the embeddings and after each block alike.

    Args:
        blocks: The blocks that the student's start from.
        first: The source's first block, whose input is the embeddings' output.
        width: Number of directions, 1..T.

    Returns:
        An orthonormal basis `[T, width]`, the most important direction first and the largest entry of each positive,
        and the share of the mean square that it keeps, 0..1.
    """
    moments = [first.inputs]
    for block in blocks:
        # The last norm of a block gives its output.
        last_norm = [*block.norms.values()][-1]
        moments.append(last_norm)
    # Each layer counts alike: without the row and column of the ones, and at trace 1.
    layer_squares = [moment[:-1, :-1] / moment[:-1, :-1].trace() for moment in moments]
    squares = sum(layer_squares[1:], start=layer_squares[0])
    # Eigenvalues come in rising order.
    directions = torch.linalg.eigh(squares).eigenvectors.flip(1)
    basis = fix_signs(directions[:, :width])
    share = (basis.T @ squares @ basis).trace() / squares.trace()
    return basis, float(share)


def fix_signs(basis: Tensor) -> Tensor:
    """Turn the columns of `[T, S]` so that the largest entry of each is positive: the same rows give the same basis."""
    row_of_largest = basis.abs().argmax(0, keepdim=True)
    signs = basis.gather(0, row_of_largest).sign()
    return (basis * signs).contiguous()


def narrow_norm(norm: nn.Module, outputs: Tensor, basis: Tensor) -> dict[str, Tensor]:
    """Return a norm's scale and shift in a narrower student: the projected states' length, and the projected shift.

    Args:
        norm: The teacher's.
        outputs: C of what it gives.
        basis: `[T, S]`.
    """
    shift = norm.get_parameter("bias").double()
    width = basis.shape[1]
    # [T, T + 1]: times an output with a one behind it, this is the output without the shift.
    without_shift = torch.cat([torch.eye(len(shift)).to(shift), -shift[:, None]], 1)
    squares = basis.T @ without_shift @ outputs @ without_shift.T @ basis
    scale = squares.trace().div(width).sqrt()
    return {"weight": scale.expand(width), "bias": basis.T @ shift}


class Heads:
    """The bilinear and linear maps of a block's heads, made of fewer dimensions each.

    A head scores a pair of inputs by x~ᵀ Wqᵀ Wk x~ / √d and writes Wo Wv x~. Of both products the best approximation
    of a student head's rank is taken, as inputs of moment C feel it (singular values of C^½ Wqᵀ Wk C^½ and Wo Wv C^½).

    Args:
        query: `[A, d, S + 1]`, its bias last; reads what the student's hidden states are.
        key: Like `query`.
        value: Like `query`.
        output: `[A, S, d]`.
        inputs: C of these hidden states, `[S + 1, S + 1]`.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, output: Tensor, inputs: Tensor) -> None:
        self.query = query
        self.key = key
        self.value = value
        self.output = output
        # C^½ and its inverse; the smallest eigenvalues are raised, since C may have none of full rank.
        values, vectors = torch.linalg.eigh(inputs)
        values = values.clamp(min=float(values[-1]) * _FLOOR)
        self._root = vectors * values.sqrt() @ vectors.T
        self._inverse = vectors * values.rsqrt() @ vectors.T

    def strength(self) -> Tensor:
        """Return the mean square of each head's output, up to its probabilities, `[A]`."""
        written = self.output @ (self.value @ self._root)
        return written.square().sum((1, 2))

    def narrow(self, heads: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the query, key, value and output maps of some heads, with `size` dimensions each."""
        query, key = self._factor(self.query[heads], self.key[heads], size)
        # The student divides scores by √size instead of √d; query and key share the factor that makes up for it.
        gain = math.sqrt(size / self.query.shape[1])
        factor = math.sqrt(gain)
        value = self.value[heads]
        output = self.output[heads]
        if size < value.shape[1]:
            output, right = best_factors(output, (value @ self._root).mT, size)
            value = right.mT @ self._inverse
        return query * factor, key * factor, value, output

    def _factor(self, query: Tensor, key: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return a query and a key map of `size` dimensions whose product is nearest to that of the given ones."""
        if size == query.shape[1]:
            return query, key
        left, right = best_factors((query @ self._root).mT, (key @ self._root).mT, size)
        return left.mT @ self._inverse, right.mT @ self._inverse


def best_factors(left: Tensor, right: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Factor the best approximation of left · rightᵀ of a rank, of many pairs at once.

    Args:
        left: `[..., m, d]`.
        right: `[..., n, d]`.
        rank: At most d.

    Returns:
        `[..., m, rank]` and `[..., n, rank]`, of equal columns' lengths; zero where there is no such rank.
    """
    # The product of the two triangular factors has the same singular values, and is only d wide.
    left_basis, left_factor = torch.linalg.qr(left)
    right_basis, right_factor = torch.linalg.qr(right)
    u, values, vh = torch.linalg.svd(left_factor @ right_factor.mT, full_matrices=False)
    root = values[..., None, :rank].sqrt()
    best_left = left_basis @ (u[..., :rank] * root)
    best_right = right_basis @ (vh.mT[..., :rank] * root)
    missing = rank - root.shape[-1]
    return nn.functional.pad(best_left, (0, missing)), nn.functional.pad(best_right, (0, missing))
