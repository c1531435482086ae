"""Keeping the weights of the epoch that does best on the select split."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's weights, on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


class BestEpoch(TrainerCallback):
    """Scores the model after every epoch and keeps a copy of its best weights; of equals, the first.

    Scoring draws no random numbers that training would have drawn, so the weights of every epoch are those of a
    training that is never scored.

    Args:
        score: Scores the model as it is; higher is better.
    """

    def __init__(self, score: Callable[[], float]) -> None:
        self._score = score
        self._best = -math.inf
        self._weights: dict[str, Tensor] = {}
        self.epoch: float | None = None
        self.scores: list[float] = []

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel | None = None,
        **kwargs: Any,
    ) -> None:
        """Score, and keep the weights if they are the best so far."""
        assert model is not None
        with torch.random.fork_rng():
            value = self._score()
        self.scores.append(value)
        # A correlation of constant predictions is NaN: no better than anything, but better than no weights at all.
        if value > self._best or not self._weights:
            self._best = value if math.isfinite(value) else -math.inf
            self._weights = copy_weights(model)
            self.epoch = state.epoch

    def restore(self, model: PreTrainedModel) -> None:
        """Give a model the kept weights."""
        model.load_state_dict(self._weights)
