"""Writing a student's tensors, and remembering how each came about."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from limbeck.errors import ModelError


@dataclass
class Transfer:
    """Writes a student's tensors and remembers how each came about, by the name it has in the base model."""

    copied: list[str] = field(default_factory=list)
    projected: list[str] = field(default_factory=list)
    reset: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)

    def put(self, name: str, target: Tensor, value: Tensor, how: list[str]) -> None:
        """Write `value` into `target` in place, in the target's dtype, and note it in one of the lists."""
        if target.shape != value.shape:
            raise ModelError(
                f"'{name}' is {list(target.shape)} in the student but {list(value.shape)} from the teacher; "
                "derive the student's configuration from this teacher's."
            )
        target.detach().copy_(value)
        how.append(name)

    def copy(self, prefix: str, target: nn.Module, source: nn.Module) -> None:
        """Copy every tensor of a module bit for bit (up to the dtype); a norm that only the student has is
        reset."""
        given = source.state_dict()
        for name, tensor in target.state_dict().items():
            if name in given:
                self.put(f"{prefix}.{name}", tensor, given[name], self.copied)
            else:
                # ModernBERT's first block has no attention norm, its others have.
                self._reset(f"{prefix}.{name}", tensor)

    def redraw(self, prefix: str, target: nn.Module, fresh: nn.Module) -> None:
        """Take every tensor of a module from a freshly built student."""
        given = fresh.state_dict()
        for name, tensor in target.state_dict().items():
            self.put(f"{prefix}.{name}", tensor, given[name], self.random)

    def embed(self, prefix: str, target: nn.Module, source: nn.Module, basis: Tensor | None) -> None:
        """Copy an embedding module, its tables projected onto `basis`, its norm reset if they are."""
        if basis is None:
            self.copy(prefix, target, source)
            return
        given = source.state_dict()
        for name, tensor in target.state_dict().items():
            if tensor.dim() == 2:
                # No mean is taken off: the map stays linear, so a zero padding row stays zero.
                self.put(f"{prefix}.{name}", tensor, given[name].double() @ basis, self.projected)
            else:
                self._reset(f"{prefix}.{name}", tensor)

    def linear(self, prefix: str, target: nn.Module, weight: Tensor, bias: Tensor) -> None:
        """Write a linear map that was worked out from the teacher's: `weight` `[out, in]`, `bias` `[out]`."""
        given = {"weight": weight, "bias": bias}
        for name, tensor in target.state_dict().items():
            self.put(f"{prefix}.{name}", tensor, given[name], self.projected)

    def reset_norm(self, prefix: str, target: nn.Module) -> None:
        """Set a norm to scale 1 and shift 0.

        A norm's scale and shift belong to the teacher's features one by one. The student's features are
        mixtures of them, so none of the teacher's values is right for any.
        """
        for name, tensor in target.state_dict().items():
            self._reset(f"{prefix}.{name}", tensor)

    def _reset(self, name: str, target: Tensor) -> None:
        target.detach().fill_(0.0 if name.endswith("bias") else 1.0)
        self.reset.append(name)
