"""What a model is made of, whatever it is measured on: parameters by place, megabytes, operations."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from transformers import PreTrainedModel

from limbeck.benchmark.models import names_shape
from limbeck.benchmark.operations import ForwardCost, forward_cost
from limbeck.benchmark.rows import Row
from limbeck.errors import ModelError
from limbeck.evaluation.costs import ParameterCounts, count_parameters, tensors_megabytes, weights_megabytes
from limbeck.models.families import Shape, depth, shape_of
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap


@dataclass(frozen=True)
class ModelSize:
    """The size of a model.

    Attributes:
        shape: Its shape.
        parameters: By place.
        megabytes: Of its weights (10⁶ bytes).
        megabytes_of: `"files"`, or `"tensors"` in the present dtype where the model has no files here.
        forward: What a whole forward pass without a head multiplies.
    """

    shape: Shape
    parameters: ParameterCounts
    megabytes: float
    megabytes_of: str
    forward: ForwardCost

    def columns(self, length: int) -> Row:
        """Return it as columns of a benchmark's row; operations are those of each token of a text of `length`."""
        return {
            "shape": str(self.shape),
            "heads": self.shape.heads,
            "embedding_parameters": self.parameters.embedding,
            "transformer_parameters": self.parameters.transformer,
            "parameters": self.parameters.total,
            "megabytes": self.megabytes,
            "megabytes_of": self.megabytes_of,
            "megaflops_per_token": self.forward.operations([length]) / length / 1e6,
        }


def measure_size(name: str, model: PreTrainedModel) -> ModelSize:
    """Measure the size of a loaded model; it is left as it was.

    Args:
        name: What it was loaded by: where its files are.
        model: The model.
    """
    shape = shape_of(model.config)
    megabytes, source = tensors_megabytes(model), "tensors"
    located = None if names_shape(name) else resolve_model(name)
    if located is not None and is_local(located):
        with suppress(ModelError):  # `megabytes_of` says which it is.
            megabytes, source = weights_megabytes(located), "files"
    with StreamTap(model, [StreamKey("hidden", depth(model.config))]) as whole:
        forward = forward_cost(whole, shape)
    return ModelSize(shape, count_parameters(model), megabytes, source, forward)
