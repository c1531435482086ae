"""Sentence vectors of hidden states: the pooling, and the modules behind it."""

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from limbeck.errors import ModelError
from limbeck.models.sentences import SentenceModule, SentencePooling, check_pooling

_WEIGHTS = "model.safetensors"


def pool(hidden: Tensor, valid: Tensor, pooling: str, skipped: Tensor | None = None) -> Tensor:
    """Pool the hidden states of each row, in float32 (or float64 for float64 input).

    With tokens h_1 … h_n: `mean` is Σ h_i / n, `mean_sqrt_len_tokens` Σ h_i / √n, `weightedmean` Σ i h_i / Σ i,
    `max` the largest of each component, `cls` h_1 and `lasttoken` h_n. A row without any has zeros.

    Args:
        hidden: `[B, L, width]`.
        valid: Bool `[B, L]`, True for real tokens; padding may be on either side.
        pooling: One of `POOLINGS`, or several joined by `+`, whose vectors are concatenated.
        skipped: How many first tokens of each row, those of a prompt, are not pooled, `[B]`. Their places still count
            in `weightedmean`.

    Returns:
        `[B, width]`, or a multiple of the width for several.

    Raises:
        ModelError: for another pooling.

    Source:
        As sentence-transformers 6 pools; `weightedmean` is of SGPT (arXiv 2202.08904, section 3.2).
    """
    check_pooling(pooling)
    hidden = hidden if hidden.is_floating_point() and hidden.element_size() == 8 else hidden.float()
    places = valid.long().cumsum(1)
    kept = valid if skipped is None else valid & (places > skipped.unsqueeze(1))
    vectors = [_pool_one(hidden, kept, places, mode) for mode in pooling.split("+")]
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)


def _pool_one(hidden: Tensor, kept: Tensor, places: Tensor, mode: str) -> Tensor:
    # No products with a mask: a padding position that is not finite must not leak.
    if mode == "max":
        top = hidden.masked_fill(~kept.unsqueeze(-1), -torch.inf).amax(1)
        return top.masked_fill(~kept.any(1, keepdim=True), 0.0)
    if mode in ("cls", "lasttoken"):
        order = kept.int() if mode == "cls" else kept.int().cumsum(1)  # The first of the greatest.
        chosen = order.argmax(1)
        return hidden.gather(1, chosen[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)
    tokens = hidden.masked_fill(~kept.unsqueeze(-1), 0.0)
    if mode == "weightedmean":
        weights = (places * kept).to(hidden.dtype)
        return (tokens * weights.unsqueeze(-1)).sum(1) / weights.sum(1, keepdim=True).clamp(min=1)
    count = kept.sum(1, keepdim=True).clamp(min=1)
    return tokens.sum(1) / (count.sqrt() if mode == "mean_sqrt_len_tokens" else count)


class SentenceHead(nn.Module):
    """Makes sentence vectors of last hidden states: pooling, and the modules behind it, in float32.

    Args:
        sentence: What the model's files say; a pooling alone for a model without such files.

    Raises:
        ModelError: for weights that are missing, damaged, pickled, or of other shapes than the files say.
    """

    def __init__(self, sentence: SentencePooling | str) -> None:
        super().__init__()
        if isinstance(sentence, str):
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
        vectors = pool(hidden, valid, self.sentence.pooling, None if self.sentence.include_prompt else skipped)
        for layer in self.layers:
            vectors = layer(vectors)
        return F.normalize(vectors, dim=-1) if self.sentence.normalize else vectors

    def width(self, hidden: int) -> int:
        """Return the width of the vectors, given that of the hidden states."""
        return self.sentence.width(hidden)


class _Dense(nn.Module):
    """activation(W x + b), plus its input where it is residual."""

    def __init__(self, module: SentenceModule) -> None:
        super().__init__()
        assert module.widths is not None
        self.linear = nn.Linear(*module.widths, bias=module.bias)
        along = {"dim": -1} if module.activation in ("Softmax", "Softmin", "LogSoftmax") else {}
        self.activation = getattr(nn, module.activation)(**along)
        differ = module.widths[0] != module.widths[1]
        self.residual = nn.Linear(*module.widths, bias=False) if module.residual and differ else None
        self._adds_input = module.residual

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.activation(self.linear(x))
        if not self._adds_input:
            return out
        return out + (x if self.residual is None else self.residual(x))


class _Normalize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


class _LayerNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x)
        return normed


def _load_module(module: SentenceModule) -> nn.Module:
    """Make a module with its weights, in float32."""
    if module.kind == "Normalize" or module.folder is None:
        return _Normalize()
    made: nn.Module = _Dense(module) if module.kind == "Dense" else _LayerNorm(module.widths[1] if module.widths else 1)
    file = module.folder / _WEIGHTS
    if not file.is_file():
        pickled = (module.folder / "pytorch_model.bin").is_file()
        raise ModelError(
            f"The module '{module.folder}' has only pickled weights, which are never loaded; load the model once with "
            "sentence-transformers and save it again."
            if pickled
            else f"The weights lack '{file}'; copy or download the model again."
        )
    try:
        weights = {name: tensor.float() for name, tensor in load_file(file).items()}
    except (SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"The weights '{file}' are damaged ({reason}); copy or download the model again.") from error
    wanted = {name: tuple(tensor.shape) for name, tensor in made.state_dict().items()}
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != wanted:
        raise ModelError(f"The weights '{file}' do not fit the config.json beside them; copy or download them again.")
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise ModelError(f"The weights '{file}' hold numbers that are not finite; copy or download the model again.")
    made.load_state_dict(weights)
    return made.eval()


def describe_pooling(pooling: str | SentenceHead) -> str:
    """Return how sentence vectors are made, for records: the pooling, and the modules behind it."""
    return pooling if isinstance(pooling, str) else str(pooling.sentence)
