"""Writing a student's tensors from those of its source, and the record of each tensor's origin.

The *source* is the model that the student starts from, usually its teacher.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torch import Tensor, nn

from limbeck.errors import ModelError

Origin: TypeAlias = Literal["copied", "projected", "reset", "random"]
"""The origin of a tensor, see `Transfer`."""


@dataclass
class Transfer:
    """Names of a student's tensors by their origin, as the base model has them.

    Attributes:
        copied: Equal to the source's.
        projected: Made of the source's by a basis, by a choice of heads and neurons, by a fit, or as means of rows.
        reset: Norms at scale 1 and shift 0.
        random: As the seed draws them.
    """

    copied: list[str] = field(default_factory=list)
    projected: list[str] = field(default_factory=list)
    reset: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)

    def write(self, prefix: str, target: nn.Module, values: Mapping[str, Tensor], origin: Origin) -> None:
        """Write every tensor of a module in place, and note its origin; a norm without a value is reset.

        A norm has a scale and a shift for each feature. The features of a narrower student are mixtures of the
        source's, so that none of the source's values fits them, and the norm gets scale 1 and shift 0.

        Args:
            prefix: The module's name, with which the names of its tensors begin.
            target: The student's module.
            values: The values of tensors by their names in the module.
            origin: The origin of the tensors with a value.

        Raises:
            ModelError: for a matrix without a value, or a value of another shape.
        """
        for key, tensor in target.state_dict().items():
            name = f"{prefix}.{key}"
            value = values.get(key)
            if value is None:
                _reset(name, tensor)
                self.reset.append(name)
                continue
            if tensor.shape != value.shape:
                raise ModelError(
                    f"'{name}' is {list(tensor.shape)} in the student but {list(value.shape)} in the teacher, so "
                    "it cannot be copied; give the student the teacher's sizes, or set layers: random."
                )
            tensor.copy_(value)
            self._names_of(origin).append(name)

    def _names_of(self, origin: Origin) -> list[str]:
        """Return the list of the tensors of an origin."""
        names: dict[Origin, list[str]] = {
            "copied": self.copied,
            "projected": self.projected,
            "reset": self.reset,
            "random": self.random,
        }
        return names[origin]

    def note_changed(self, names: Iterable[str]) -> None:
        """Note that tensors which were written as copies are now made of the source's, such as by a fit.

        Names of tensors that are no copies are passed over.
        """
        for name in names:
            if name in self.copied:
                self.copied.remove(name)
                self.projected.append(name)

    def take(self, paths: Iterable[str], target: nn.Module, source: nn.Module, origin: Origin) -> None:
        """Write the modules at some paths as those of another model, see `write`."""
        for path in paths:
            values = source.get_submodule(path).state_dict()
            self.write(path, target.get_submodule(path), values, origin)


def _reset(name: str, tensor: Tensor) -> None:
    """Set a norm's scale to 1, or its shift to 0.

    Raises:
        ModelError: for a matrix, which is no norm's.
    """
    if tensor.dim() > 1:
        raise ModelError(
            f"'{name}' of the student has no counterpart in the teacher's layer that it starts from, which is "
            "built differently; choose other layers to start from, or set layers: random."
        )
    is_shift = name.endswith("bias")
    tensor.fill_(0.0 if is_shift else 1.0)
