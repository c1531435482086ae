"""Packing, of weights for speed on a CPU, and of batches.

PyTorch hands a plain weight to oneDNN in rows, which lays it out anew in every call. A teacher's weights never change,
so they are laid out once: products of a teacher's usual shapes take 5 to 20 % less time, and up to 50 % less by the
kernel for CPUs with a matrix unit, see `tile_linear`.

A padded batch runs as one row of its real tokens, so that no layer computes padding: linear maps and norms see real
tokens only, attention keeps samples apart by their lengths, and streams are put back where their tokens were. On a GPU
a batch packs whose lengths were read before it left the host, see `send_batch`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from limbeck.kernels import tile_linear, varlen_attention
from limbeck.kernels.packed_attention import HALVES
from limbeck.models.streams import StreamKey, Streams

_FORMATS = (torch.float32, torch.bfloat16)


class PackedLinear(nn.Module):
    """A linear map for inference on a CPU, equal to the `nn.Linear` that it is made of.

    Its weight is laid out for a kernel of oneDNN's or limbeck's, so it is no parameter and moves to no other device.

    Args:
        linear: The map; float32 or bfloat16, without gradient.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.training = linear.training
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        self.in_tiles = tile_linear.can_map(weight)
        if self.in_tiles:
            self.weight = tile_linear.lay_out(weight)
        else:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self.bias = None if linear.bias is None else linear.bias.detach().to(weight.dtype).contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., in]` to `[..., out]`."""
        readable = tile_linear.can_read(x, self.weight) if self.in_tiles else x.dtype == self.weight.dtype
        if x.requires_grad or not readable:
            return F.linear(x, self._plain_weight().to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))
        if self.in_tiles:
            return tile_linear.tile_linear(x, self.weight, self.bias)
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return found

    def unpacked(self) -> nn.Linear:
        """Make the plain frozen map again."""
        linear = nn.Linear(self.in_features, self.out_features, bias=False, device="meta").train(self.training)
        linear.weight = nn.Parameter(self._plain_weight(), requires_grad=False)
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias, requires_grad=False)
        return linear

    def _plain_weight(self) -> Tensor:
        return tile_linear.plain_weight(self.weight) if self.in_tiles else self.weight.to_dense()


def pack_linear_maps(modules: Iterable[nn.Module]) -> int:
    """Replace the frozen linear maps inside some modules by packed ones, where this CPU and PyTorch can.

    Args:
        modules: For example the blocks of a teacher; changed in place.

    Returns:
        How many were replaced.
    """
    return _replace(modules, lambda child: PackedLinear(child) if _can_pack(child) else None)


def unpack_linear_maps(modules: Iterable[nn.Module]) -> None:
    """Put plain maps back, so that the model can be moved, saved and trained again."""
    _replace(modules, lambda child: child.unpacked() if isinstance(child, PackedLinear) else None)


def _replace(modules: Iterable[nn.Module], make: Callable[[Any], nn.Module | None]) -> int:
    """Replace the modules inside of others for which another is made, and count them."""
    count = 0
    for module in modules:
        for parent in list(module.modules()):
            for name, child in list(parent.named_children()):
                if (made := make(child)) is not None:
                    setattr(parent, name, made)
                    count += 1
    return count


def _can_pack(linear: nn.Module) -> bool:
    if type(linear) is not nn.Linear:
        return False
    weight = linear.weight
    if weight.device.type != "cpu" or weight.dtype not in _FORMATS or weight.requires_grad:
        return False
    if linear._forward_hooks or linear._forward_pre_hooks or not torch.backends.mkldnn.is_available():
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")):
        return False
    return weight.dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


# Mean length from which packing pays in float32: attention runs sample by sample, and for shorter ones starting its
# operations costs more than padding does. In bfloat16 it runs in groups of samples.
SHORTEST_MEAN = 96


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of a batch are.

    Args:
        shape: B and L of the batch.
        index: Flat places of the T real tokens in `[B · L]`, in order.
        lengths: Real tokens of each sample that has any.
        offsets: Where each of these begins in the row, and where it ends, int32, on a GPU; None on a CPU.
    """

    shape: tuple[int, int]
    index: Tensor
    lengths: list[int]
    offsets: Tensor | None = None

    def pack(self, tokens: Tensor) -> Tensor:
        """Take the real tokens of `[B, L, ...]`: `[1, T, ...]`."""
        return tokens.flatten(0, 1).index_select(0, self.index).unsqueeze(0)

    def unpack(self, packed: Tensor) -> Tensor:
        """Put `[1, T, ...]` back to `[B, L, ...]`, with 0 in place of padding."""
        batch, length = self.shape
        if len(self.index) == batch * length:
            return packed[0].unflatten(0, self.shape)
        rows = packed.new_zeros(batch * length, *packed.shape[2:])
        return rows.index_copy(0, self.index, packed[0]).unflatten(0, self.shape)


class RowStreams(Mapping[StreamKey, Tensor]):
    """Streams of a batch that ran as one row, each put back to `[B, L, ...]` when it is asked for.

    Args:
        packing: Where the tokens of the row were.
        rows: Streams by token, `[1, T, ...]`.
        made: All others, as they are.
    """

    def __init__(self, packing: Packing, rows: Streams, made: Streams) -> None:
        self.packing, self.rows, self._made = packing, dict(rows), dict(made)

    def __getitem__(self, key: StreamKey) -> Tensor:
        if key not in self._made:
            self._made[key] = self.packing.unpack(self.rows.pop(key))
        return self._made[key]

    def __contains__(self, key: object) -> bool:
        return key in self._made or key in self.rows

    def __iter__(self) -> Iterator[StreamKey]:
        return iter(self.rows | self._made)

    def __len__(self) -> int:
        return len(self.rows | self._made)

    def tensors(self) -> list[Tensor]:
        """Return all that it holds, each stream in the shape that it has by now."""
        return [*self.rows.values(), *self._made.values()]

    def changed(self, change: Callable[[Tensor], Tensor]) -> "RowStreams":
        """Return a copy in which `change` has replaced every tensor by one of its shape."""
        rows, made = ({key: change(x) for key, x in streams.items()} for streams in (self.rows, self._made))
        return RowStreams(self.packing, rows, made)


def rows_of_tokens(student: Streams, teacher: Streams) -> tuple[Streams, Streams] | None:
    """Return the streams of both models that are rows of the same tokens, `[1, T, ...]`.

    None where the models did not run so, or the teacher ran in float32, where sums over tokens keep the batch's order.
    """
    if not isinstance(student, RowStreams) or not isinstance(teacher, RowStreams):
        return None
    own, other = student.packing, teacher.packing
    alike = own.shape == other.shape and own.lengths == other.lengths
    if own is not other and not (alike and torch.equal(own.index, other.index)):
        return None
    in_half = any(x.dtype in HALVES for x in teacher.rows.values())
    return (student.rows, teacher.rows) if in_half else None


GPUS = ("cuda",)
"""Devices that attend within samples of a packed row without waiting."""
_PLAN = "_limbeck_packing"
"""Attribute of a mask on such a device: how its batch packs."""


def plan_packing(attention_mask: Tensor, dtype: torch.dtype = torch.float32) -> Packing | None:
    """Find the real tokens of a batch; None where packing does not pay, or a GPU would have to be waited for.

    Args:
        attention_mask: `[B, L]`, nonzero where a token is real; any shape of mask.
        dtype: Of attention.
    """
    if attention_mask.dim() != 2 or torch.compiler.is_compiling():
        return None
    if attention_mask.device.type != "cpu":
        return attention_mask.__dict__.get(_PLAN) if dtype in varlen_attention.FORMATS else None
    packing = _find_tokens(attention_mask)
    tokens, samples = len(packing.index), len(packing.lengths)
    if not samples or (dtype not in HALVES and tokens < SHORTEST_MEAN * samples):
        return None
    return packing


def send_batch(batch: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Send a batch to a device, without waiting where it is pinned, and its packing with its masks to a GPU.

    On the host lengths are read for free; on a GPU that would wait for all of its work. Whoever cuts such a batch
    gets masks without a packing.
    """
    sent = {name: x.to(device, non_blocking=True) if isinstance(x, Tensor) else x for name, x in batch.items()}
    if device.type in GPUS:
        for name, mask in batch.items():
            if name.endswith("attention_mask") and mask.device.type == "cpu" and mask.any():
                sent[name].__dict__[_PLAN] = plan_for_gpu(mask, device)
    return sent


def plan_for_gpu(attention_mask: Tensor, device: torch.device) -> Packing:
    """Plan the packing of a mask `[B, L]` that is on the host, for its batch on a device."""
    packing = _find_tokens(attention_mask)
    offsets = torch.tensor([0, *accumulate(packing.lengths)], dtype=torch.int32)
    index, offsets = (
        (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True) for x in (packing.index, offsets)
    )
    return Packing(packing.shape, index, packing.lengths, offsets)


def _find_tokens(attention_mask: Tensor) -> Packing:
    """Find them by reading the mask, which is on a CPU."""
    valid = attention_mask.bool()
    lengths = [size for size in valid.sum(1).tolist() if size]
    return Packing((valid.shape[0], valid.shape[1]), valid.flatten().nonzero().flatten(), lengths)


def padded_batch_positions(input_ids: Tensor, padding_id: int | None) -> Tensor:
    """Position of every token as its model counts them by itself in a padded batch, `[B, L]`.

    Args:
        input_ids: `[B, L]`.
        padding_id: Where positions are counted from the padding id on, over tokens that are none (the RoBERTa
            lineage); None where they are places in the row.
    """
    if padding_id is None:
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    real = (input_ids != padding_id).long()
    return real.cumsum(1) * real + padding_id
