"""Parameters of a student that no term of a stage reaches, found by a backward pass, and frozen."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from limbeck.training.module import DistillationModule


def freeze_unreached(module: DistillationModule, batch: Mapping[str, Tensor]) -> list[str]:
    """Freeze the parameters that no term reaches.

    They are found by a backward pass on a small batch, after which they have no gradient. This holds for any
    architecture. For example, where only queries, keys and values of the last block are taught, nothing reaches the
    block's attention output and its feed-forward layer.

    Args:
        module: The module; parameters that are frozen already stay so. Its gradients are cleared.
        batch: `input_ids` and `attention_mask` of a few rows.

    Returns:
        Names of the student's parameters that this call froze, in order.
    """
    frozen_before = untrained_names(module.student)
    was_training = module.training
    # Dropout must not draw from the run's random stream.
    module.eval()
    try:
        outputs = module(**batch)
        torch.stack([total for total, _ in outputs.values()]).sum().backward()
        for parameter in module.parameters():
            if parameter.grad is None:
                parameter.requires_grad_(False)
    finally:
        module.zero_grad(set_to_none=True)
        module.train(was_training)
    return [name for name in untrained_names(module.student) if name not in frozen_before]


def untrained_names(student: nn.Module) -> list[str]:
    """Return the names of the parameters that are frozen."""
    return [name for name, parameter in student.named_parameters() if not parameter.requires_grad]
