"""Writing a student's tensors from those of another model, and the record of each tensor's origin."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from limbeck.errors import ModelError


@dataclass
class Transfer:
    """Names of a student's tensors by their origin, as the base model has them.

    Attributes:
        copied: Equal to the source's.
        projected: Made of the source's by a basis, or by a choice of heads and neurons.
        reset: Norms at scale 1 and shift 0.
        random: As the seed draws them.
    """

    copied: list[str] = field(default_factory=list)
    projected: list[str] = field(default_factory=list)
    reset: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)

    def write(self, prefix: str, target: nn.Module, values: Mapping[str, Tensor], origin: list[str]) -> None:
        """Write every tensor of a module in place, in the target's dtype; a norm without a value is reset.

        A norm's scale and shift belong to the source's features one by one. The features of a narrower student are
        mixtures of them, so none of the source's values is right for any: scale 1 and shift 0.

        Args:
            prefix: The module's name.
            target: The student's module.
            values: By the tensors' names in the module.
            origin: The list that takes the names of tensors with a value.

        Raises:
            ModelError: for a matrix without a value, or a value of another shape.
        """
        for key, tensor in target.state_dict().items():
            name = f"{prefix}.{key}"
            value = values.get(key)
            if value is None:
                if tensor.dim() > 1:
                    raise ModelError(
                        f"'{name}' of the student has no counterpart in the teacher's layer that it starts from, which "
                        "is built differently; start from other layers, or set layers: random."
                    )
                tensor.fill_(0.0 if key.endswith("bias") else 1.0)
                self.reset.append(name)
                continue
            if tensor.shape != value.shape:
                raise ModelError(
                    f"'{name}' is {list(tensor.shape)} in the student but {list(value.shape)} from the teacher; "
                    "derive the student's configuration from this teacher's."
                )
            tensor.copy_(value)
            origin.append(name)

    def take(self, paths: Iterable[str], target: nn.Module, source: nn.Module, origin: list[str]) -> None:
        """Write the modules at some paths as those of another model, see `write`."""
        for path in paths:
            self.write(path, target.get_submodule(path), source.get_submodule(path).state_dict(), origin)
