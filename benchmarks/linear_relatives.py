"""Published relatives of a fitted start: a linear map in the place of dropped layers, in closed form.

Both papers are for decoders, whose blocks end with a sum. In an encoder whose blocks end with a norm, as BERT's do,
they read as follows. Layer a is the last one before the dropped layers, and layer b the last dropped one.

- ReplaceMe (arXiv 2505.02819): with M the output of layer a's feed-forward part and r what is added to it, T minimises
  Σ ‖M T + r − z‖² + λ ‖T‖², and is merged into the output map of layer a. In a decoder z is layer b's output. Here z is
  the sum before layer b's norm, and layer a gets layer b's norm.
- Ghosted Layers (arXiv 2605.15491): with x and y the outputs of layers a and b, x (I + D) takes the place of x, where D
  minimises Σ ‖x D − (y − x)‖² + λ ‖D‖². The map stays in the model as a module of its own.

All of it is read from the teacher's own forward. Axis letters: n tokens, S width.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from limbeck.models.families import base_model, blocks, shape_of
from limbeck.models.start import register_as_start
from limbeck.models.start_step import Start, StartStep
from limbeck.models.streams import StreamKey

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Sums = dict[str, Tensor]
"""By name, sums over tokens in float64, `[S, S]` each: `part` MᵀM, `part_target` Mᵀ(z − r), `output` xᵀx and
`output_target` xᵀ(y − x); and the number of `tokens`."""


@register_as_start(replace=True)
class LinearSums(StartStep):
    """Writes the sums that both papers' maps follow from, over a text of a start; the student stays as it is.

    Options: `kept` and `dropped`, layers a and b of the teacher, `tokens`, as in a fit, and `file`.
    """

    name = "linear_sums"
    place = "fit"
    reads_text = True

    def apply(self, start: Start) -> None:
        """Read the text once, and write the file."""
        options = start.settings.steps[self.name]
        source = base_model(start.source)
        kept = blocks(source)[options["kept"] - 1].output
        dropped = blocks(source)[options["dropped"] - 1].output
        width = shape_of(source.config).hidden
        sums: Sums = {}
        for name in ("part", "part_target", "output", "output_target"):
            sums[name] = torch.zeros(width, width, dtype=torch.float64)
        recorded: dict[str, Tensor] = {}
        handles = [
            kept.dense.register_forward_hook(lambda _, __, output: recorded.update(part=output)),
            kept.LayerNorm.register_forward_hook(
                lambda _, inputs, output: recorded.update(kept_sum=inputs[0], kept_output=output)
            ),
            dropped.LayerNorm.register_forward_hook(
                lambda _, inputs, output: recorded.update(dropped_sum=inputs[0], dropped_output=output)
            ),
        ]
        count = 0
        assert start.texts is not None
        try:
            for batch in start.texts([StreamKey("hidden", options["dropped"])], tokens=options["tokens"]):
                is_real = batch.inputs["attention_mask"].bool()
                rows = {name: tensor[is_real].double() for name, tensor in recorded.items()}
                residual = rows["kept_sum"] - rows["part"]
                sums["part"] += rows["part"].T @ rows["part"]
                sums["part_target"] += rows["part"].T @ (rows["dropped_sum"] - residual)
                sums["output"] += rows["kept_output"].T @ rows["kept_output"]
                sums["output_target"] += rows["kept_output"].T @ (rows["dropped_output"] - rows["kept_output"])
                count += int(is_real.sum())
        finally:
            for handle in handles:
                handle.remove()
        torch.save(sums | {"tokens": torch.tensor(count)}, Path(options["file"]))


def ridge_solution(gram: Tensor, products: Tensor, ridge: float) -> Tensor:
    """The map that minimises the squared error plus λ times its squared entries.

    Args:
        gram: Σ aᵀ a, `[S, S]`.
        products: Σ aᵀ b, `[S, S]`.
        ridge: λ as a share of the mean diagonal entry of `gram`.
    """
    penalty = ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    return torch.linalg.solve(gram + penalty, products)


@torch.no_grad()
def replace_me(
    student: PreTrainedModel, teacher: PreTrainedModel, sums: Sums, ridge: float, *, layer: int, dropped: int
):
    """Merge ReplaceMe's map into a student's layer, in place.

    Args:
        student: A BERT with copied layers.
        teacher: What it was copied from.
        sums: As `LinearSums` writes them.
        ridge: See `ridge_solution`.
        layer: The student's layer before the dropped ones, from 1.
        dropped: Layer b.
    """
    change = ridge_solution(sums["part"], sums["part_target"], ridge).float()
    output = blocks(base_model(student))[layer - 1].output
    output.dense.weight.copy_(change.T @ output.dense.weight)
    output.dense.bias.copy_(output.dense.bias @ change)
    output.LayerNorm.load_state_dict(blocks(base_model(teacher))[dropped - 1].output.LayerNorm.state_dict())


def ghosted_layers(student: PreTrainedModel, sums: Sums, ridge: float, *, layer: int) -> None:
    """Put the map of Ghosted Layers behind a student's layer, in place.

    Args:
        student: A BERT with copied layers.
        sums: As `LinearSums` writes them.
        ridge: See `ridge_solution`.
        layer: The student's layer before the dropped ones, from 1.
    """
    change = ridge_solution(sums["output"], sums["output_target"], ridge).float()

    def add_change(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output + output @ change

    blocks(base_model(student))[layer - 1].output.LayerNorm.register_forward_hook(add_change)
