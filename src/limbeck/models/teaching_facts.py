"""`TeachingFacts`: what is known of a teaching before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from limbeck.errors import RecipeError
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey


@dataclass(frozen=True)
class TeachingFacts:
    """What is known of a teaching before anything is loaded: methods are composed, and recipes checked, by it.

    The numbers of its model are attributes too, such as `layers` and `hidden`: see `Shape`.

    Args:
        title: What messages and records call it.
        shape: The shape of the model that is read; None where there is no model, such as for vectors in a file.
        widths: Without a model, the width of each stream that it gives, by the stream's name: `{"pooled": 384}`.
        labels: Names of a classifier's classes, in the order of its scores.
        identity: A text that changes with what it teaches, which a resumed run compares; empty for a model, whose
            weights are compared.
        reads: What of a batch it reads: the tokens, or the rows as a whole.
    """

    title: str
    shape: Shape | None = None
    widths: Mapping[str, int] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    identity: str = ""
    reads: Literal["tokens", "rows"] = "tokens"

    @property
    def model_shape(self) -> Shape:
        """The shape of its model, for methods that read layers.

        Raises:
            RecipeError: if there is no model.
        """
        if self.shape is None:
            raise RecipeError(
                f"this method reads the layers of a model, but '{self.title}' has none; choose a method on sentence "
                "vectors or scores, or a teacher that is a model."
            )
        return self.shape

    def __getattr__(self, name: str) -> Any:
        """Return a number of the model's shape; this is called for names that the facts lack."""
        if name in Shape.__dataclass_fields__:
            return getattr(self.model_shape, name)
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

    @property
    def depth(self) -> int | None:
        """Number of layers; None without a model."""
        return None if self.shape is None else self.shape.layers

    @property
    def output_layer(self) -> int:
        """The layer of streams that are made of a whole output, such as `pooled` and `logits`; 0 without a model."""
        return self.depth or 0

    @property
    def width(self) -> int:
        """Width of hidden states; without a model that of the pooled vectors, 0 where there are none."""
        if self.shape is None:
            return self.widths.get("pooled", 0)
        return self.shape.hidden

    def check_gives(self, key: StreamKey, term: str) -> None:
        """Refuse a stream that it cannot give.

        Args:
            key: The stream.
            term: Name of the term that reads it.

        Raises:
            RecipeError: saying which streams it gives.
        """
        # A model gives every stream; without one those of `widths` are given, at the layer of the output.
        if self.shape is not None:
            return
        if key.name in self.widths and key.layer == self.output_layer:
            return
        raise RecipeError(
            f"The term '{term}' reads {key} of the teacher, but '{self.title}' gives {' and '.join(self.widths)} "
            "alone; choose a method on these, or a teacher that is a model."
        )


def facts_of_shape(shape: Shape, title: str = "the teacher", labels: tuple[str, ...] = ()) -> TeachingFacts:
    """Return the facts of a model that is read live, by its shape."""
    return TeachingFacts(title, shape, labels=labels)
