"""`TeachingFacts`: the facts about a teacher that are known before anything is loaded.

A *teacher* is a model that runs beside the student, or a source of stored outputs, such as vectors in a file. Its
outputs are *streams*, tensors at layers; see `streams.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from limbeck.errors import RecipeError
from limbeck.models.families import Shape
from limbeck.models.streams import StreamKey


@dataclass(frozen=True)
class TeachingFacts:
    """Facts about a teacher that are known before anything is loaded; methods and the checks of recipes read them.

    The numbers of a model's shape are attributes too, such as `layers` and `hidden`: see `Shape`.

    Args:
        title: The teacher's name in messages and records.
        shape: The shape of the model; None for a teacher that is no model, such as vectors in a file.
        widths: For a teacher that is no model, the width of each stream that it gives, by name: `{"pooled": 384}`.
        hidden_width: For a teacher that is no model, the width of the hidden states that its vectors were pooled from;
            0 where it is not known.
        labels: Names of a classifier's classes, in the order of its scores.
        identity: A text that changes with what is taught, by which a resumed run sees that it is the same. It is empty
            for a model, whose weights are compared.
        reads: Whether it needs the tokens of a batch, or the rows (texts) as a whole.
        way_out: For a teacher that is no model, what to do where its layers are read; for messages.
    """

    title: str
    shape: Shape | None = None
    widths: Mapping[str, int] = field(default_factory=dict)
    hidden_width: int = 0
    labels: tuple[str, ...] = ()
    identity: str = ""
    reads: Literal["tokens", "rows"] = "tokens"
    way_out: str = (
        "choose a method on sentence vectors or scores, such as aligned_embedding, or sentence_embedding with "
        "hidden_weight: 0; or a teacher that is a model"
    )

    @property
    def model_shape(self) -> Shape:
        """The shape of its model, for methods that read layers.

        Raises:
            RecipeError: if there is no model.
        """
        if self.shape is None:
            raise RecipeError(f"this method reads the layers of a model, but '{self.title}' has none; {self.way_out}.")
        return self.shape

    def __getattr__(self, name: str) -> Any:
        """Return a number of the model's shape; Python calls this for names that are no other attribute."""
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
        """Width of hidden states; without a model that of the pooled or finished vectors, 0 where there are none."""
        if self.shape is not None:
            return self.shape.hidden
        # Where only finished vectors are known, nothing is known to be between the pooling and them.
        return self.hidden_width or self.widths.get("pooled", 0) or self.widths.get("vector", 0)

    def check_gives(self, key: StreamKey, term: str) -> None:
        """Refuse a stream that the teacher does not give.

        Args:
            key: The stream: a tensor of a model, such as its logits, at a layer.
            term: Name of the term (a loss of the method) that reads it.

        Raises:
            RecipeError: if the teacher does not give it; the message names the streams that it gives.
        """
        # A model gives every stream. Any other teacher gives the streams of `widths`, at its output layer.
        if self.shape is not None:
            return
        if key.name in self.widths and key.layer == self.output_layer:
            return
        if not self.widths:
            raise RecipeError(
                f"The term '{term}' reads {key} of the teacher, but '{self.title}' gives no outputs at all; give a "
                "teacher that is a model."
            )
        raise RecipeError(
            f"The term '{term}' reads {key} of the teacher, but '{self.title}' gives {' and '.join(self.widths)} "
            "only; choose a method on these outputs, make a store for this method with `limbeck teach`, or give a "
            "teacher that is a model."
        )


def facts_of_shape(shape: Shape, title: str = "the teacher", labels: tuple[str, ...] = ()) -> TeachingFacts:
    """Return the facts of a model that is read live, by its shape."""
    return TeachingFacts(title, shape, labels=labels)
