"""A wrong divisor of the loss is noticed: the check that accumulation changes nothing fails under it."""

import pytest

from limbeck.training.trainer import DistillationTrainer
from tests.support.training import assert_accumulation_changes_nothing

METHODS = ("minilmv2", "sentence_embedding")
NOT_CLIPPED = 1000.0


def changed(original, divided, counted):
    """Divide once more, or each micro-batch by its count alone, as a trainer does that knows of no accumulation."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = original(self, model, inputs, return_outputs, num_items_in_batch if counted else None)
        return loss / self.args.gradient_accumulation_steps if divided else loss

    return compute_loss


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("divided", "counted"),
    [(True, True), (False, False), (True, False)],
    ids=["divided twice", "sum of means", "mean of means"],
)
def test_a_wrong_divisor_is_noticed(divided, counted, method, tmp_path, monkeypatch):
    original = DistillationTrainer.compute_loss
    monkeypatch.setattr(DistillationTrainer, "compute_loss", changed(original, divided, counted))
    with pytest.raises(AssertionError, match="not close"):
        assert_accumulation_changes_nothing(method, NOT_CLIPPED, tmp_path)
