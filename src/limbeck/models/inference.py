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

_TOKENS_ON_CPU = 4096
"""Most tokens of a batch on a CPU, where larger batches are not faster, and progress comes between two batches."""


def encoder_of(model: nn.Module) -> nn.Module:
    """Return the encoder inside a task model (`BertModel` in `BertForMaskedLM`), or the model itself."""
    return getattr(model, "base_model", model)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters (the CPU for a module without any)."""
    for parameter in model.parameters():
        return parameter.device
    return torch.device("cpu")


def longest_input(model: nn.Module) -> int | None:
    """Return the largest number of tokens that the model takes, special tokens included; None where nothing limits it.

    RoBERTa-like models number their positions from `padding_idx + 1`, so their table of 514 rows takes 512
    tokens.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith("position_embeddings"):
            first_row = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - first_row
    config: Any = getattr(model, "config", None)
    limit = getattr(config, "max_position_embeddings", None)
    if isinstance(limit, int) and limit > 0:
        return int(limit)
    return None


class Batch(NamedTuple):
    """A padded batch.

    Args:
        rows: The index of each of its rows among all rows.
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
        batch_size: Most rows of a batch. On a CPU a batch of long rows has fewer.
        report: Receives the share of tokens that are done.
        what: The name of the step in progress reports.
    """
    total = sum(len(row) for row in rows)
    tokens_done = 0
    # A tokenizer without a padding token has None.
    padding_id = tokenizer.pad_token_id or 0
    longest_first = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    report(0.0, what, Count(0, "tokens", total))
    first = 0
    while first < len(rows):
        rows_of_batch = batch_size
        if device.type == "cpu":
            length_of_batch = len(rows[longest_first[first]])
            rows_of_batch = min(batch_size, max(1, _TOKENS_ON_CPU // length_of_batch))
        row_numbers = longest_first[first : first + rows_of_batch]
        first += rows_of_batch
        ids = [torch.tensor(rows[number], dtype=torch.long) for number in row_numbers]
        ones = [torch.ones_like(row) for row in ids]
        # [B, L] each, padded on the right.
        input_ids = pad_sequence(ids, batch_first=True, padding_value=padding_id)
        attention_mask = pad_sequence(ones, batch_first=True)
        inputs = {"input_ids": input_ids.to(device), "attention_mask": attention_mask.to(device)}
        yield Batch(row_numbers, inputs, attention_mask.bool())
        tokens_done += int(attention_mask.sum())
        report(tokens_done / total, what, Count(tokens_done, "tokens", total))


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
        roles: The role of each text, `query` or `document`, whose prompt is put before it; None for the default prompt.
        pooling: One of `limbeck.models.sentences.POOLINGS`, or the pooling, modules and prompts of the model's folder.
        max_length: Longest input in tokens, special tokens included; lowered to the limit of the model.
        batch_size: Most texts of a forward pass. On a CPU a pass has fewer long texts.
        dtype: Dtype of weights and activations; None keeps the model's own. Pooling is always done in float32.
        normalize: Whether to scale vectors to length one, if the model's own modules do not.
        report: Receives the progress.

    Returns:
        `[len(texts), width]`, float32, on the CPU, in the order of `texts`, each row of L2 norm 1 unless `normalize`
        is False. A text without a single token (only possible without special tokens) gets a row of zeros.

    Raises:
        ModelError: if the pooling is unknown, or the model has no last hidden state.
    """
    encoder = encoder_of(model)
    head = SentenceHead(pooling) if isinstance(pooling, str) else pooling
    limit = _input_limit(encoder, tokenizer, max_length)

    prompted = _read_behind_prompts(tokenizer, head, texts, roles, limit)

    # A text without a token is not run, and keeps its row of zeros.
    texts_with_tokens = [index for index, ids in enumerate(prompted.token_ids) if ids]
    rows = [prompted.token_ids[index] for index in texts_with_tokens]
    # A model of your own may have no configuration, or one that names no width. Then the first batch shows the width.
    config = getattr(encoder, "config", None)
    hidden_width = getattr(config, "hidden_size", 0)
    vectors = torch.zeros(len(texts), head.width(hidden_width))
    # A head that normalizes its vectors has scaled them already.
    must_scale = normalize and not head.sentence.normalize
    with evaluation_mode(encoder, dtype) as ready_encoder, torch.inference_mode():
        device = device_of(ready_encoder)
        head = head.to(device)
        for batch in batches(
            rows, tokenizer, device=device, batch_size=batch_size, report=report, what="sentence vectors"
        ):
            output: Any = ready_encoder(**batch.inputs)
            hidden = getattr(output, "last_hidden_state", None)
            if hidden is None:
                encoder_name = type(ready_encoder).__name__
                raise ModelError(
                    f"{encoder_name} returns no last_hidden_state, which limbeck reads; load the model with AutoModel."
                )
            mask = batch.inputs["attention_mask"].bool()
            # The numbers of the batch's texts among all texts.
            text_numbers = [texts_with_tokens[row] for row in batch.rows]
            prompt_tokens = prompted.prompt_tokens[text_numbers].to(mask.device)
            batch_vectors = head(hidden.float(), mask, prompt_tokens)
            if must_scale:
                batch_vectors = F.normalize(batch_vectors, dim=-1)
            if vectors.shape[1] != batch_vectors.shape[1]:
                vectors = torch.zeros(len(texts), batch_vectors.shape[1])
            vectors[text_numbers] = batch_vectors.cpu()
    return vectors


class _PromptedTexts(NamedTuple):
    """Texts behind their prompts, as a model reads them.

    Args:
        token_ids: The token ids of each text and its prompt.
        prompt_tokens: The number of tokens of each text's prompt, `[texts]`. Some heads leave them out of the pooling.
    """

    token_ids: list[list[int]]
    prompt_tokens: Tensor


def _read_behind_prompts(
    tokenizer: PreTrainedTokenizerBase,
    head: SentenceHead,
    texts: Sequence[str],
    roles: Sequence[str | None] | None,
    limit: int,
) -> _PromptedTexts:
    """Put the prompt of its role before each text, and cut both into at most `limit` tokens."""
    if not texts:
        return _PromptedTexts([], torch.zeros(0, dtype=torch.long))
    if roles is None:
        roles = [None] * len(texts)
    prompts = [head.sentence.prompt(role) for role in roles]
    prompted_texts = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    encoding = tokenizers.encode_texts(tokenizer, prompted_texts, truncation=True, max_length=limit)
    # A model has few prompts, so each is counted once.
    counts = {prompt: _count_prompt_tokens(tokenizer, prompt, limit) for prompt in set(prompts)}
    prompt_tokens = torch.tensor([counts[prompt] for prompt in prompts], dtype=torch.long)
    return _PromptedTexts(encoding["input_ids"], prompt_tokens)


def _input_limit(encoder: nn.Module, tokenizer: PreTrainedTokenizerBase, max_length: int) -> int:
    """Return the least of the lengths that the caller, the tokenizer and the model allow, in tokens."""
    limits = [max_length, tokenizer.model_max_length]
    length_of_model = longest_input(encoder)
    if length_of_model is not None:
        limits.append(length_of_model)
    return int(min(limits))


def _count_prompt_tokens(tokenizer: PreTrainedTokenizerBase, prompt: str, limit: int) -> int:
    """Count the tokens of a prompt and the special tokens before it, as sentence-transformers does; 0 for no prompt.

    Args:
        tokenizer: The model's tokenizer.
        prompt: The text of the prompt.
        limit: Most tokens of a text.
    """
    if not prompt:
        return 0
    ids = tokenizers.encode_texts(tokenizer, [prompt], truncation=True, max_length=limit)["input_ids"][0]
    # A special token at the end stands behind the whole text, not behind the prompt.
    if ids and ids[-1] in tokenizer.all_special_ids:
        return len(ids) - 1
    return len(ids)


def encode_both(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    first: Sequence[str],
    second: Sequence[str],
    roles: tuple[str, str] | None = None,
    **encoding: Unpack[Encoding],
) -> tuple[Tensor, Tensor]:
    """Return the sentence vectors of two lists of texts, `[texts, width]` each.

    A text that occurs several times with the same role is encoded once.

    Args:
        model: As in `encode`.
        tokenizer: As in `encode`.
        first: Texts, such as queries, or the first of every pair.
        second: Texts, such as documents, or the second of every pair.
        roles: The role of the first list and that of the second; None for the default prompt.
        encoding: As in `encode`.
    """
    first_role, second_role = roles or (None, None)
    first_keys = [(text, first_role) for text in first]
    second_keys = [(text, second_role) for text in second]
    different_keys = list(dict.fromkeys([*first_keys, *second_keys]))
    vectors = encode(
        model,
        tokenizer,
        [text for text, _ in different_keys],
        [role for _, role in different_keys],
        **encoding,
    )
    row_of_key = {key: row for row, key in enumerate(different_keys)}
    first_rows = torch.tensor([row_of_key[key] for key in first_keys], dtype=torch.long)
    second_rows = torch.tensor([row_of_key[key] for key in second_keys], dtype=torch.long)
    return vectors[first_rows], vectors[second_rows]


def cut_vectors(vectors: Tensor, width: int | None) -> Tensor:
    """Return the first `width` components of vectors, scaled to length one again; None leaves them whole.

    Source: Matryoshka representations (arXiv 2205.13147, section 3).
    """
    if width is None:
        return vectors
    return F.normalize(vectors[:, :width], dim=-1)
