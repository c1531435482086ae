"""Linear maps of a frozen model on a CPU, whose weights are laid out in memory once, as the matrix product wants them.

PyTorch stores a weight in rows. oneDNN, its library for products on a CPU, brings it into a layout of its own in every
call. A teacher's weights never change, so that is done once, which is called *packing* here: products of a teacher's
usual shapes take 5 to 20 % less time.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_FORMATS = (torch.float32, torch.bfloat16)
_OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise")
"""Operations of PyTorch that packed maps need, which are not part of its public interface."""


class PackedLinear(nn.Module):
    """A linear map for inference on a CPU, equal to the `nn.Linear` that it is made of.

    Its weight is laid out for oneDNN, so it is no parameter and moves to no other device.

    Args:
        linear: The map; float32 or bfloat16, without gradient.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.training = linear.training
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        weight = linear.weight.detach()
        # The layout that mkldnn reads fastest. None stands for batches of any size.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self.bias: Tensor | None = None
        if linear.bias is not None:
            self.bias = linear.bias.detach().to(weight.dtype).contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., in]` to `[..., out]`."""
        if x.requires_grad or x.dtype != self.weight.dtype:
            # The packed product has no gradient, and takes inputs of the weight's number format only.
            weight = self.weight.to_dense().to(x.dtype)
            bias = None if self.bias is None else self.bias.to(x.dtype)
            return F.linear(x, weight, bias)
        # The last three arguments name an activation to apply to the result: none.
        mapped: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return mapped

    def unpacked(self) -> nn.Linear:
        """Make the plain frozen map again."""
        linear = nn.Linear(self.in_features, self.out_features, bias=False, device="meta").train(self.training)
        linear.weight = nn.Parameter(self.weight.to_dense(), requires_grad=False)
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias, requires_grad=False)
        return linear


def pack_linear_maps(modules: Iterable[nn.Module]) -> int:
    """Replace the frozen linear maps inside some modules by packed ones, where this CPU and PyTorch can.

    Args:
        modules: For example the blocks of a teacher; changed in place.

    Returns:
        The number of replaced maps.
    """
    return _replace(modules, _can_pack, PackedLinear)


def unpack_linear_maps(modules: Iterable[nn.Module]) -> None:
    """Put plain maps back, so that the model can be moved, saved and trained again."""
    _replace(modules, lambda child: isinstance(child, PackedLinear), PackedLinear.unpacked)


def _replace(
    modules: Iterable[nn.Module], must_replace: Callable[[nn.Module], bool], make_other: Callable[[Any], nn.Module]
) -> int:
    """Replace modules inside of others, and return their number.

    Args:
        modules: The modules whose inner modules are replaced, in place.
        must_replace: Returns whether an inner module is replaced.
        make_other: Makes the module that takes its place.
    """
    count = 0
    for module in modules:
        for parent in list(module.modules()):
            for name, child in list(parent.named_children()):
                if must_replace(child):
                    # PyTorch registers the new module in the old one's place.
                    setattr(parent, name, make_other(child))
                    count += 1
    return count


def _can_pack(linear: nn.Module) -> bool:
    """Whether a module is a plain frozen map that this CPU and PyTorch can pack."""
    # A subclass may compute something else.
    if type(linear) is not nn.Linear:
        return False
    # Hooks would be lost with the map that they are on. Torch has no public way to ask for them.
    if linear._forward_hooks or linear._forward_pre_hooks:
        return False
    weight = linear.weight
    if weight.device.type != "cpu" or weight.dtype not in _FORMATS or weight.requires_grad:
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in _OPERATIONS):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return True
