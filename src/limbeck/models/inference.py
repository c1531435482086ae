"""Running a loaded model without changing it: mode, dtype, inner encoder, length limit, sentence vectors.

Axis letters: B batch, L tokens, H hidden.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from limbeck.core.progress import Count, Report, no_progress
from limbeck.errors import ModelError
from limbeck.models import tokenizers
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.sentence_heads import SentenceHead


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
    total = sum(len(row) for row in rows)
    done = 0
    padding_id = tokenizer.pad_token_id or 0
    longest_first = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    report(0.0, what, Count(0, "tokens"))
    for start in range(0, len(rows), batch_size):
        chosen = longest_first[start : start + batch_size]
        ids = [torch.tensor(rows[index], dtype=torch.long) for index in chosen]
        attention_mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
        input_ids = pad_sequence(ids, batch_first=True, padding_value=padding_id)
        inputs = {"input_ids": input_ids.to(device), "attention_mask": attention_mask.to(device)}
        yield Batch(chosen, inputs, attention_mask.bool())
        done += int(attention_mask.sum())
        report(done / total, what, Count(done, "tokens"))


class Encoding(TypedDict, total=False):
    """The options of `encode`."""

    pooling: str | SentenceHead
    max_length: int
    batch_size: int
    dtype: torch.dtype | None
    normalize: bool
    report: Report


def encode(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    roles: Sequence[str | None] | None = None,
    *,
    pooling: str | SentenceHead = "mean",
    max_length: int = 256,
    batch_size: int = 32,
    dtype: torch.dtype | None = None,
    normalize: bool = True,
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
        roles: Use of each, such as `query` or `document`, whose prompt is put before it; None for the default one.
        pooling: One of `limbeck.models.sentences.POOLINGS`, or the pooling, modules and prompts of the model's folder.
        max_length: Longest input in tokens, special tokens included; lowered to the limit of the model.
        batch_size: Texts per forward pass.
        dtype: Of weights and activations; None keeps the model's own dtype. Pooling is always done in float32.
        normalize: Scale to length one what the model's own modules leave at another length.
        report: Receives the progress.

    Returns:
        `[len(texts), width]`, float32, on the CPU, in the order of `texts`, each row of L2 norm 1 unless `normalize`
        is False. A text without a single token (only possible without special tokens) gets a row of zeros.

    Raises:
        ModelError: if the pooling is unknown, or the model has no last hidden state.
    """
    encoder = encoder_of(model)
    head = SentenceHead(pooling) if isinstance(pooling, str) else pooling
    scales = normalize and not head.sentence.normalize

    # Each text behind the prompt of its role.
    used_roles: Sequence[str | None] = roles or [None] * len(texts)
    prompts = [head.sentence.prompt(role) for role in used_roles]
    texts = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    limit = int(min(max_length, tokenizer.model_max_length, longest_input(encoder) or max_length))
    token_ids: list[list[int]] = []
    if texts:
        token_ids = tokenizers.encode_texts(tokenizer, texts, truncation=True, max_length=limit)["input_ids"]
    counts = {prompt: _prompt_tokens(tokenizer, prompt, limit) for prompt in set(prompts)}
    skipped = torch.tensor([counts[prompt] for prompt in prompts], dtype=torch.long)

    # A text without a token keeps its row of zeros.
    filled = [index for index, ids in enumerate(token_ids) if ids]
    rows = [token_ids[index] for index in filled]
    result = torch.zeros(len(texts), head.width(getattr(getattr(encoder, "config", None), "hidden_size", 0)))
    with evaluation_mode(encoder, dtype) as ready, torch.inference_mode():
        device = device_of(ready)
        head = head.to(device)
        read = batches(rows, tokenizer, device=device, batch_size=batch_size, report=report, what="sentence vectors")
        for batch in read:
            output: Any = ready(**batch.inputs)
            hidden = getattr(output, "last_hidden_state", None)
            if hidden is None:
                raise ModelError(f"{type(ready).__name__} returns no last hidden state; load it with AutoModel.")
            mask = batch.inputs["attention_mask"].bool()
            places = [filled[row] for row in batch.rows]
            vectors = head(hidden.float(), mask, skipped[places].to(mask.device))
            if result.shape[1] != vectors.shape[1]:  # The configuration names no width.
                result = torch.zeros(len(texts), vectors.shape[1])
            if scales:
                vectors = F.normalize(vectors, dim=-1)
            result[places] = vectors.cpu()
    return result


def _prompt_tokens(tokenizer: PreTrainedTokenizerBase, prompt: str, limit: int) -> int:
    """Count the tokens of a prompt, with the special ones before it, as sentence-transformers does; 0 without one."""
    if not prompt:
        return 0
    ids = tokenizers.encode_texts(tokenizer, [prompt], truncation=True, max_length=limit)["input_ids"][0]
    return len(ids) - (bool(ids) and ids[-1] in tokenizer.all_special_ids)


def encode_both(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    first: Sequence[str],
    second: Sequence[str],
    roles: tuple[str, str] | None = None,
    **encoding: Unpack[Encoding],
) -> tuple[Tensor, Tensor]:
    """Return the sentence vectors of two lists of texts, `[texts, width]` each; equal texts of a role are encoded once.

    Args:
        model: As in `encode`.
        tokenizer: As in `encode`.
        first: Texts, such as queries, or the first of every pair.
        second: Texts, such as documents, or the second of every pair.
        roles: Of both lists; None for the default.
        encoding: As in `encode`.
    """
    lists = [
        [(text, role) for text in texts] for texts, role in zip((first, second), roles or (None, None), strict=True)
    ]
    row_of = {one: row for row, one in enumerate(dict.fromkeys([*lists[0], *lists[1]]))}
    vectors = encode(model, tokenizer, [text for text, _ in row_of], [role for _, role in row_of], **encoding)
    left, right = (torch.tensor([row_of[one] for one in each], dtype=torch.long) for each in lists)
    return vectors[left], vectors[right]


def cut_vectors(vectors: Tensor, width: int | None) -> Tensor:
    """Return the first `width` components of vectors, scaled to length one again; None leaves them whole.

    Source: Matryoshka representations (arXiv 2205.13147, section 3).
    """
    return vectors if width is None else F.normalize(vectors[:, :width], dim=-1)
