"""Packing of padded batches: which batches run as one row of their real tokens, and how they reach a device.

No layer then computes padding: linear maps and norms see real tokens only, attention keeps samples apart by their
lengths, and streams are put back where their tokens were. The *host* is the machine's CPU. On a GPU the lengths of the
samples could only be read by waiting for its work, so a batch is packed there only if they were read on the host,
before the batch was sent; see `send_batch`.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from limbeck.kernels import varlen_attention
from limbeck.kernels.packed_attention import HALVES
from limbeck.models.packed_rows import Packing

SHORTEST_MEAN = 96
"""Mean length from which packing pays in float32.

Attention runs sample by sample there, and for shorter samples starting its operations costs more than padding does. In
bfloat16 it runs in groups of samples.
"""
GPUS = ("cuda",)
"""Types of devices that have attention within the samples of a packed row."""
_PLAN = "_limbeck_packing"
"""Attribute of an attention mask on a GPU that holds the `Packing` of its batch."""


def plan_packing(attention_mask: Tensor, dtype: torch.dtype = torch.float32) -> Packing | None:
    """Return the packing of a batch; None if it is better run padded.

    Args:
        attention_mask: `[B, L]`, nonzero where a token is real. A mask of another shape is not packed.
        dtype: The number format of attention.
    """
    # Compiled code cannot take the shapes of a packing, which depend on the numbers in the mask.
    if attention_mask.dim() != 2 or torch.compiler.is_compiling():
        return None
    if attention_mask.device.type != "cpu":
        if dtype not in varlen_attention.FORMATS:
            return None
        # `send_batch` has put a packing there, unless the mask has no real token or reached the device by another way.
        plan: Packing | None = attention_mask.__dict__.get(_PLAN)
        return plan
    packing = _find_tokens(attention_mask)
    samples = len(packing.lengths)
    tokens = len(packing.index)
    if samples == 0:
        return None
    is_half = dtype in HALVES
    has_short_samples = tokens < SHORTEST_MEAN * samples
    # In float32 attention runs sample by sample, which for short samples costs more than padding.
    if has_short_samples and not is_half:
        return None
    return packing


def send_batch(batch: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Send a batch to a device; on a GPU its attention masks then carry the packing, for `plan_packing`.

    Tensors in pinned memory are sent without waiting. A mask that is cut or copied afterwards is a new tensor, which
    has no packing.
    """
    sent: dict[str, Any] = {}
    for name, value in batch.items():
        if isinstance(value, Tensor):
            sent[name] = value.to(device, non_blocking=True)
        else:
            sent[name] = value
    if device.type not in GPUS:
        return sent
    # A batch may have several masks, whose names all end in the same way.
    for name, value in batch.items():
        if not name.endswith("attention_mask") or value.device.type != "cpu":
            continue
        # A mask without a real token is not packed.
        if value.any():
            sent[name].__dict__[_PLAN] = plan_for_gpu(value, device)
    return sent


def plan_for_gpu(attention_mask: Tensor, device: torch.device) -> Packing:
    """Return the packing of a mask `[B, L]` on the host, with its tensors sent to the device of the batch."""
    packing = _find_tokens(attention_mask)
    offsets = torch.tensor([0, *accumulate(packing.lengths)], dtype=torch.int32)
    index = packing.index
    # Only tensors in pinned memory are sent without waiting.
    if device.type == "cuda":
        index = index.pin_memory()
        offsets = offsets.pin_memory()
    return Packing(
        packing.shape,
        index.to(device, non_blocking=True),
        packing.lengths,
        offsets.to(device, non_blocking=True),
    )


def _find_tokens(attention_mask: Tensor) -> Packing:
    """Find the real tokens of a mask that is on a CPU."""
    valid = attention_mask.bool()
    batch, length = valid.shape
    index = valid.flatten().nonzero().flatten()
    lengths = [tokens for tokens in valid.sum(1).tolist() if tokens > 0]
    return Packing((batch, length), index, lengths)


def padded_batch_positions(input_ids: Tensor, padding_id: int | None) -> Tensor:
    """Return the position of every token as a model itself would count it in a padded batch, `[B, L]`.

    Args:
        input_ids: `[B, L]`.
        padding_id: The padding id, for models that count the real tokens of a row from `padding_id + 1` on, and give
            padding the position `padding_id` (the RoBERTa lineage). None for models that count all tokens from 0.
    """
    if padding_id is None:
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    is_real = (input_ids != padding_id).long()
    # A real token's number among the real ones of its row, from 1; 0 for padding.
    token_numbers = is_real.cumsum(1) * is_real
    return token_numbers + padding_id
