"""An evaluator of your own: `limbeck --plugin examples/own_evaluator.py evaluate MODEL --tasks closeness:sentences`."""

from limbeck.evaluation import Evaluator, encode, register_as_evaluator
from limbeck.models.loading import load_model
from limbeck.models.tokenizers import load_tokenizer

SENTENCES = ("The river carries the boats.", "A theory needs examples.", "Winter came early.", "The market is closed.")


@register_as_evaluator()
class Closeness(Evaluator):
    """Mean cosine of sentences that have nothing in common: of a good encoder it is low."""

    name = "closeness"
    metrics = ("mean_cosine",)

    def score(self, model, task, report):
        """Return the figure of a model; there is only one task, whatever its name."""
        vectors = encode(load_model(model), load_tokenizer(model), SENTENCES)
        count = len(SENTENCES)
        off_diagonal = (vectors @ vectors.T).sum() - count
        return {"mean_cosine": float(off_diagonal / (count * (count - 1)))}
