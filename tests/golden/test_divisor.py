"""A wrong divisor of the loss is noticed: the check that accumulation changes nothing fails under it."""

import pytest

from tests.golden import internals
from tests.support.training import assert_accumulation_changes_nothing

METHODS = ("minilmv2", "sentence_embedding")
NOT_CLIPPED = 1000.0


def divided_twice(original):
    """Divide once more, as a trainer does that does not know that the loss is scaled already."""

    def compute_loss(self, *arguments, **named):
        return original(self, *arguments, **named) / self.args.gradient_accumulation_steps

    return compute_loss


def divided_by_its_own_batch(original):
    """Divide each micro-batch by its own count alone, so that their means add up."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return original(self, model, inputs, return_outputs)

    return compute_loss


def mean_of_means(original):
    """Average the means of the micro-batches, which is wrong where these differ in length."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return original(self, model, inputs, return_outputs) / self.args.gradient_accumulation_steps

    return compute_loss


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "change", [divided_twice, divided_by_its_own_batch, mean_of_means], ids=lambda one: one.__name__
)
def test_a_wrong_divisor_is_noticed(change, method, tmp_path, monkeypatch):
    trainer = internals.DistillationTrainer
    monkeypatch.setattr(trainer, "compute_loss", change(trainer.compute_loss))
    with pytest.raises(AssertionError, match="not close"):
        assert_accumulation_changes_nothing(method, NOT_CLIPPED, tmp_path)
