"""Losses of fine-tunings that a model does not bring itself, for `compute_loss_func` of a `transformers.Trainer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class ClassWeightedLoss:
    """The cross entropy with weights of classes, as in `torch.nn.CrossEntropyLoss(weights)`.

    The mean is the weighted sum divided by the sum of the weights of the batch's labels.

    Args:
        weights: The weight of each class.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = weights

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        """Return the mean over a batch.

        Args:
            outputs: The model's outputs, with `logits`, `[B, classes]` or `[B, L, classes]`.
            labels: Numbers of classes, `[B]` or `[B, L]`; -100 is left out.
            num_items_in_batch: Not read: a step is one batch.
        """
        import torch
        from torch.nn import functional as F

        logits = outputs["logits"].float()
        weights = torch.tensor(self._weights, device=logits.device)
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), weights)


class FlagWeightedLoss:
    """The binary cross entropy with weights of the classes that a row has.

    It is `torch.nn.BCEWithLogitsLoss(pos_weight=weights)`.

    Args:
        weights: The weight of each class.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = weights

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        """Return the mean over a batch.

        Args:
            outputs: The model's outputs, with `logits`, `[B, classes]`.
            labels: 1 or 0, `[B, classes]`.
            num_items_in_batch: Not read: a step is one batch.
        """
        import torch
        from torch.nn import functional as F

        logits = outputs["logits"].float()
        weights = torch.tensor(self._weights, device=logits.device)
        return F.binary_cross_entropy_with_logits(logits, labels, pos_weight=weights)


def relevance_loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """Return the mean binary cross entropy of documents' scores with their relevance, as cross-encoders are trained.

    Pairs count one by one: a query's documents need not meet in a batch. A relevance above 1 counts as 1.

    Args:
        outputs: The model's outputs, with `logits`, `[B, 1]`.
        labels: Relevance, 0 or more, `[B]`.
        num_items_in_batch: Not read: a step is one batch.
    """
    from torch.nn import functional as F

    return F.binary_cross_entropy_with_logits(outputs.logits[:, 0].float(), labels.float().clamp(max=1))
