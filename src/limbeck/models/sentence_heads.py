"""Sentence vectors of hidden states: the pooling, and the modules behind it."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from limbeck.errors import ModelError
from limbeck.models.sentences import SentenceModule, SentencePooling, check_pooling
from limbeck.models.weight_files import WEIGHTS

_PICKLED_WEIGHTS = "pytorch_model.bin"


def pool(hidden: Tensor, valid: Tensor, pooling: str, skipped: Tensor | None = None) -> Tensor:
    """Pool the hidden states of each row, in float32 (or float64 for float64 input).

    With tokens h_1 … h_n: `mean` is Σ h_i / n, `mean_sqrt_len_tokens` Σ h_i / √n, `weightedmean` Σ i h_i / Σ i,
    `max` the largest of each component, `cls` h_1 and `lasttoken` h_n. A row without tokens gives zeros.

    Args:
        hidden: `[B, L, width]`.
        valid: Bool `[B, L]`, True for real tokens; padding may be on either side.
        pooling: One of `POOLINGS`, or several joined by `+`, whose vectors are concatenated.
        skipped: The number of tokens at the beginning of each row, those of a prompt, that are not pooled, `[B]`. The
            weights of `weightedmean` count them all the same.

    Returns:
        `[B, width]`, or a multiple of the width for several.

    Raises:
        ModelError: for another pooling.

    Source:
        As sentence-transformers 6 pools; `weightedmean` is of SGPT (arXiv 2202.08904, section 3.2).
    """
    check_pooling(pooling)
    if hidden.dtype != torch.float64:
        hidden = hidden.float()
    # The number of each real token in its row, from 1.
    token_numbers = valid.long().cumsum(1)
    included = valid
    if skipped is not None:
        included = valid & (token_numbers > skipped.unsqueeze(1))

    vectors = [_pool_by(mode, hidden, included, token_numbers) for mode in pooling.split("+")]
    if len(vectors) == 1:
        return vectors[0]
    return torch.cat(vectors, dim=-1)


def _pool_by(mode: str, hidden: Tensor, included: Tensor, token_numbers: Tensor) -> Tensor:
    """Pool `[B, L, width]` by a single mode to `[B, width]`.

    Padding is masked, never multiplied by 0: a number there that is not finite must not leak.

    Args:
        mode: One of `POOLINGS`.
        hidden: `[B, L, width]`.
        included: Bool `[B, L]`, the tokens to pool.
        token_numbers: `[B, L]`, the number of each real token in its row, from 1.
    """
    if mode == "max":
        return _largest(hidden, included)
    if mode == "cls":
        # argmax gives the first of several equal maxima, here the first included token.
        return _token_at(hidden, included.int().argmax(1))
    if mode == "lasttoken":
        # The running count of included tokens first reaches its maximum at the last of them.
        return _token_at(hidden, included.int().cumsum(1).argmax(1))

    tokens = hidden.masked_fill(~included.unsqueeze(-1), 0.0)
    if mode == "weightedmean":
        weights = (token_numbers * included).to(hidden.dtype)
        weighted_sum = (tokens * weights.unsqueeze(-1)).sum(1)
        return weighted_sum / weights.sum(1, keepdim=True).clamp(min=1)
    divisor = included.sum(1, keepdim=True).clamp(min=1)
    if mode == "mean_sqrt_len_tokens":
        divisor = divisor.sqrt()
    return tokens.sum(1) / divisor


def _largest(hidden: Tensor, included: Tensor) -> Tensor:
    """Return the largest value of each component, `[B, width]`; zeros for a row without tokens."""
    largest = hidden.masked_fill(~included.unsqueeze(-1), -torch.inf).amax(1)
    has_tokens = included.any(1, keepdim=True)
    return largest.masked_fill(~has_tokens, 0.0)


def _token_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Return one vector a row, `[B, width]`, at the positions `[B]`."""
    width = hidden.shape[-1]
    index = positions[:, None, None].expand(-1, 1, width)
    return hidden.gather(1, index).squeeze(1)


class SentenceHead(nn.Module):
    """Makes sentence vectors of last hidden states: pooling, and the modules behind it, in float32.

    Args:
        sentence: The description of the head, or the name of a pooling for a head without modules.

    Raises:
        ModelError: for weights that are missing, damaged, pickled, or of other shapes than the files say.
    """

    def __init__(self, sentence: SentencePooling | str) -> None:
        super().__init__()
        if isinstance(sentence, str):
            # The name of a pooling alone describes a head without modules.
            sentence = SentencePooling(sentence, normalize=False, max_length=None)
        check_pooling(sentence.pooling)
        self.sentence = sentence
        self.layers = nn.ModuleList(_load_module(module) for module in sentence.modules)
        self.requires_grad_(False)

    def forward(self, hidden: Tensor, valid: Tensor, skipped: Tensor | None = None) -> Tensor:
        """Return the vectors `[B, width]` of rows of hidden states `[B, L, H]`; see `pool`.

        Args:
            hidden: Last hidden states.
            valid: Bool `[B, L]`, True for real tokens.
            skipped: Tokens of the prompt at the beginning of each row, `[B]`; read only where they are not pooled.
        """
        if self.sentence.include_prompt:
            # The tokens of prompts are pooled like all others.
            skipped = None
        vectors = pool(hidden, valid, self.sentence.pooling, skipped)
        for layer in self.layers:
            vectors = layer(vectors)
        if self.sentence.normalize:
            vectors = F.normalize(vectors, dim=-1)
        return vectors

    def width(self, hidden: int) -> int:
        """Return the width of the vectors, given that of the hidden states."""
        return self.sentence.width(hidden)


# Activations that take an axis, which is that of the features here.
_ACTIVATIONS_ALONG_AN_AXIS = ("Softmax", "Softmin", "LogSoftmax")


class _Dense(nn.Module):
    """activation(W x + b), plus its input where it is residual.

    Where the widths differ, the input goes through a linear map, `residual`, before it is added. The names of the maps
    are those that sentence-transformers saves.
    """

    def __init__(self, module: SentenceModule) -> None:
        super().__init__()
        assert module.in_width is not None
        assert module.out_width is not None
        self.linear = nn.Linear(module.in_width, module.out_width, bias=module.bias)
        activation = getattr(nn, module.activation)
        if module.activation in _ACTIVATIONS_ALONG_AN_AXIS:
            self.activation = activation(dim=-1)
        else:
            self.activation = activation()
        self.residual: nn.Linear | None = None
        if module.residual and module.in_width != module.out_width:
            self.residual = nn.Linear(module.in_width, module.out_width, bias=False)
        self._adds_input = module.residual

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors `[B, in]` to `[B, out]`."""
        out: Tensor = self.activation(self.linear(x))
        if not self._adds_input:
            return out
        if self.residual is None:
            return out + x
        return out + self.residual(x)


class _Normalize(nn.Module):
    """Scales vectors to length one."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale vectors `[B, width]`."""
        return F.normalize(x, dim=-1)


class _LayerNorm(nn.Module):
    """A layer norm whose weights have the names that sentence-transformers saves."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Norm vectors `[B, width]`."""
        normed: Tensor = self.norm(x)
        return normed


def _load_module(module: SentenceModule) -> nn.Module:
    """Build a module with its weights, in float32."""
    if module.class_name == "Normalize":
        return _Normalize()
    assert module.folder is not None
    layer: nn.Module
    if module.class_name == "Dense":
        layer = _Dense(module)
    else:
        assert module.out_width is not None
        layer = _LayerNorm(module.out_width)

    # Weights are checked before they are loaded, so that an error names the file.
    weights = _read_weights(module.folder)
    file = module.folder / WEIGHTS
    if _shapes(weights) != _shapes(layer.state_dict()):
        raise ModelError(
            f"The weights '{file}' do not fit the config.json beside them; copy or download the model again."
        )
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise ModelError(f"The weights '{file}' hold numbers that are not finite; copy or download the model again.")
    layer.load_state_dict(weights)
    return layer.eval()


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Read the weights in a module's folder, in float32."""
    file = folder / WEIGHTS
    if not file.is_file():
        if (folder / _PICKLED_WEIGHTS).is_file():
            raise ModelError(
                f"The module '{folder}' has only pickled weights, which limbeck never loads, since a pickle can "
                "run code; load the model once with sentence-transformers and save it again."
            )
        raise ModelError(f"The weights lack '{file}'; copy or download the model again.")
    try:
        return {name: tensor.float() for name, tensor in load_file(file).items()}
    except (SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"The weights '{file}' are damaged ({reason}); copy or download the model again.") from error


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor by its name."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def describe_pooling(pooling: str | SentenceHead) -> str:
    """Return a description of the pooling and of the modules behind it, for records."""
    if isinstance(pooling, str):
        return pooling
    return str(pooling.sentence)


def pooling_alone(pooling: str | SentenceHead) -> str:
    """Return the name of the pooling without the modules behind it."""
    if isinstance(pooling, str):
        return pooling
    return pooling.sentence.pooling
