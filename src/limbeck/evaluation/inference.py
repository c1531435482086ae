"""Running a loaded model without changing it: mode, dtype, inner encoder, length limit, sentence vectors."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from limbeck.core.progress import Count, Report, no_progress
from limbeck.corpus.batches import padded_batches
from limbeck.errors import ModelError
from limbeck.models import loading, taps


@contextmanager
def evaluation_mode(model: nn.Module, dtype: torch.dtype | None = None) -> Iterator[nn.Module]:
    """Yield `model` in eval mode, computing in `dtype`; afterwards every module has the mode it had before.

    Args:
        model: Any module. It is never cast: where `dtype` is not its own, a cast copy is yielded instead.
        dtype: The dtype of weights and activations; None keeps the model's.

    Yields:
        The model, or its cast copy, in eval mode.
    """
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if dtype is not None and dtype != own:
        yield copy.deepcopy(model).to(dtype).eval()
        return
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        # Not `model.train(previous)`: that would also switch on parts that were frozen in eval mode on purpose.
        for module, training in modes:
            module.training = training


def encoder_of(model: nn.Module) -> nn.Module:
    """Return the encoder inside a task model (`BertModel` in `BertForMaskedLM`), or the model itself."""
    return getattr(model, "base_model", model)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters (the CPU for a module without any)."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def longest_input(model: nn.Module) -> int | None:
    """Return how many tokens the model can take, special tokens included; None where nothing limits it.

    RoBERTa-like models number their positions from `padding_idx + 1`, so their table of 514 rows takes 512
    tokens.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith("position_embeddings"):
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - first
    config: Any = getattr(model, "config", None)
    limit = getattr(config, "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else None


# Axis letters: B batch, L tokens, H hidden.


class Batch(NamedTuple):
    """A padded batch.

    Args:
        rows: Its rows, by their place among all rows.
        inputs: `input_ids` and `attention_mask`, `[B, L]`, padded on the right.
        valid: Bool `[B, L]`, on the CPU: True for real tokens.
    """

    rows: list[int]
    inputs: dict[str, Tensor]
    valid: Tensor


def batches(
    rows: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    device: torch.device,
    batch_size: int = 16,
    report: Report = no_progress,
    what: str = "Reading",
) -> Iterator[Batch]:
    """Yield rows in batches of similar length, the longest first.

    Args:
        rows: Token ids, none empty.
        tokenizer: For the padding id; padding is masked, so that any id will do for a tokenizer without one.
        device: Where the inputs go.
        batch_size: Rows a batch.
        report: Receives the share of tokens that are done.
        what: The step in words.
    """
    total, done = sum(map(len, rows)), 0
    report(0.0, what, Count(0, "tokens"))
    for chosen, inputs in padded_batches(rows, tokenizer.pad_token_id or 0, batch_size):
        valid = inputs["attention_mask"].bool()
        yield Batch(chosen, {name: tensor.to(device) for name, tensor in inputs.items()}, valid)
        done += int(valid.sum())
        report(done / total, what, Count(done, "tokens"))


class Encoding(TypedDict, total=False):
    """The options of `encode`."""

    pooling: str
    max_length: int
    batch_size: int
    dtype: torch.dtype | None
    report: Report


def encode(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    pooling: str = "mean",
    max_length: int = 256,
    batch_size: int = 32,
    dtype: torch.dtype | None = None,
    report: Report = no_progress,
) -> Tensor:
    """Turn texts into sentence vectors.

    Batches are made of texts of similar length, so little is spent on padding. Segment ids are never passed:
    models that have them use segment 0, the others would refuse them. Neither the model nor the tokenizer is
    changed.

    Args:
        model: A loaded `transformers` encoder, or a task model, whose encoder is then used.
        tokenizer: Its tokenizer. Padding and truncation that its file may have fixed are ignored.
        texts: The texts, in any order.
        pooling: `"mean"` or `"cls"`, see `limbeck.models.taps.pool`.
        max_length: Longest input in tokens, special tokens included; lowered to the limit of the model.
        batch_size: Texts per forward pass.
        dtype: Of weights and activations; None keeps the model's own dtype. Pooling is always done in float32.
        report: Receives the progress.

    Returns:
        `[len(texts), H]`, float32, on the CPU, in the order of `texts`, each row of L2 norm 1. A text without
        a single token (only possible without special tokens) gets a row of zeros.

    Raises:
        ModelError: if the pooling is unknown, or the model has no last hidden state.
    """
    taps.check_pooling(pooling)
    encoder = encoder_of(model)
    limit = int(min(max_length, tokenizer.model_max_length, longest_input(encoder) or max_length))
    token_ids = loading.encode_texts(tokenizer, texts, truncation=True, max_length=limit)["input_ids"] if texts else []
    filled = [index for index, ids in enumerate(token_ids) if ids]
    rows = [token_ids[index] for index in filled]
    found = torch.zeros(len(texts), getattr(getattr(encoder, "config", None), "hidden_size", 0))
    what = "sentence vectors"
    with evaluation_mode(encoder, dtype) as ready, torch.inference_mode():
        for batch in batches(rows, tokenizer, device=device_of(ready), batch_size=batch_size, report=report, what=what):
            output: Any = ready(**batch.inputs)
            hidden = getattr(output, "last_hidden_state", None)
            if hidden is None:
                raise ModelError(f"{type(ready).__name__} returns no last hidden state; load it with AutoModel.")
            vectors = taps.pool(hidden.float(), batch.inputs["attention_mask"].bool(), pooling)
            if found.shape[1] != vectors.shape[1]:
                found = torch.zeros(len(texts), vectors.shape[1])
            found[[filled[row] for row in batch.rows]] = F.normalize(vectors, dim=-1).cpu()
    return found


def pair_similarities(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]], **encoding: Unpack[Encoding]
) -> Tensor:
    """Return each pair's cosine similarity, `[len(pairs)]`; a text in several pairs is encoded once.

    The arguments are those of `encode`.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    row_of = {text: row for row, text in enumerate(texts)}
    vectors = encode(model, tokenizer, texts, **encoding)
    left = torch.tensor([row_of[a] for a, _ in pairs], dtype=torch.long)
    right = torch.tensor([row_of[b] for _, b in pairs], dtype=torch.long)
    return (vectors[left] * vectors[right]).sum(-1)


def spearman_agreement(student_similarities: ArrayLike, teacher_similarities: ArrayLike) -> float:
    """Return Spearman's rank correlation (ties share their mean rank) between two lists of similarities.

    Returns:
        A number in [-1, 1]; NaN where it is undefined: fewer than two pairs, all similarities equal, or a NaN
        in them.
    """
    student, teacher = (np.asarray(student_similarities, np.float64), np.asarray(teacher_similarities, np.float64))
    if student.shape != teacher.shape or student.ndim != 1:
        raise ValueError(f"two lists of equal length are needed, not shapes {student.shape} and {teacher.shape}")
    if len(student) < 2 or np.isnan(student).any() or np.isnan(teacher).any():
        return float("nan")
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (student, teacher)]
    scale = np.sqrt(np.prod([(each**2).sum() for each in ranks]))
    return float((ranks[0] * ranks[1]).sum() / scale) if scale > 0 else float("nan")
