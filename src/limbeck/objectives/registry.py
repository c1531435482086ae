"""What the rest of the house may know about each objective without calling it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from limbeck.errors import KernelError
from limbeck.objectives.hidden import hidden_cosine, hidden_mse
from limbeck.objectives.loss_term import LossTerm
from limbeck.objectives.pooled import pooled_cosine
from limbeck.objectives.relation import relation_kl
from limbeck.objectives.sample import sample_relation_kl
from limbeck.registry import Registry

Unit: TypeAlias = Literal["token", "sample", "label"]


@dataclass(frozen=True)
class Objective:
    """An objective and the facts that training and the conformance suite need.

    Args:
        name: As recipes and methods write it.
        function: Student streams, then as many teacher streams, then keywords, to `LossTerm`.
        student_streams: How many tensors of the student it takes.
        unit: What its count is proportional to, with a constant that does not depend on the batch: "token" is
            a valid token, "sample" a row of the batch, "label" a position with a label. The units of an
            accumulation window can be added up before its first backward pass.
        batch_coupled: Samples of a batch act on each other: the sum over two halves is not the whole.
        is_divergence: 0 when student equals teacher, above 0 otherwise.
        takes_valid: Has the keyword `valid`, `[B, L]`.
        takes_projection: Has the keyword `projection`, a learned map from the student's width to the
            teacher's.
        takes_heads: Needs the keyword `heads`.
    """

    name: str
    function: Callable[..., LossTerm]
    student_streams: int
    unit: Unit
    batch_coupled: bool = False
    is_divergence: bool = True
    takes_valid: bool = False
    takes_projection: bool = False
    takes_heads: bool = False


OBJECTIVES: Registry[Objective] = Registry("objective", KernelError)
for _objective in (
    Objective("relation_kl", relation_kl, 2, "token", takes_valid=True, takes_heads=True),
    Objective("hidden_mse", hidden_mse, 1, "token", takes_valid=True, takes_projection=True),
    Objective("hidden_cosine", hidden_cosine, 1, "token", takes_valid=True),
    Objective("pooled_cosine", pooled_cosine, 1, "sample", takes_projection=True),
    Objective("sample_relation_kl", sample_relation_kl, 1, "sample", batch_coupled=True),
):
    OBJECTIVES.register(_objective.name, _objective)
