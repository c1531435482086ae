"""The default evaluation of a run takes a tenth of its training or 30 s: what it measures is halved until it fits."""

import pytest

from limbeck.recipe.schema import EvaluationSpec
from limbeck.report.quality import comparison_notes
from limbeck.training.evaluation import choose_amounts


def chosen(seconds, *, budget=30.0, retrieves=True, **spec):
    return choose_amounts(
        EvaluationSpec(**spec), of_vectors=True, retrieves=retrieves, budget=budget, seconds_of_text=lambda: seconds
    )


@pytest.mark.parametrize("seconds", [0.0, 1e-5, 0.004])
def test_what_fits_is_measured_whole(seconds):
    found = chosen(seconds)
    assert (found.pairs, found.retrieval_pairs, found.batch_sizes, found.reduced) == (1500, 700, (1, 32), ())


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.2])
def test_what_does_not_fit_is_halved_until_it_does(seconds):
    found, more = chosen(seconds), chosen(seconds, budget=3000.0)
    cost = 2 * (found.pairs + found.retrieval_pairs) * seconds
    assert cost <= 0.6 * 30 and 2 * cost > 0.6 * 30 * 0.9 and found.reduced[:2] == ("pairs", "retrieval_pairs")
    assert 7 * found.batch_sizes[-1] * seconds <= 0.4 * 30 or found.batch_sizes == (1, 2)
    assert more.pairs == 1500 and not more.reduced
    assert chosen(seconds * 1.02).pairs == found.pairs, "as much on a machine that is a little slower"


def test_what_the_recipe_says_is_measured_whatever_it_costs():
    found = chosen(1.0, pairs=3000, retrieval_pairs=500, batch_sizes=[64])
    assert (found.pairs, found.retrieval_pairs, found.batch_sizes, found.reduced) == (3000, 500, (64,), ())
    found = chosen(1.0, pairs=3000)
    assert found.pairs == 3000 and found.retrieval_pairs < 700 and found.reduced == ("retrieval_pairs", "batch_sizes")


def test_what_is_off_costs_nothing():
    found = chosen(0.001, quality=False)
    assert (found.pairs, found.retrieval_pairs, found.reduced) == (0, 0, ())
    assert chosen(0.001, retrieves=False).retrieval_pairs == 0
    assert chosen(1.0, speed=False).batch_sizes == (1, 32)


def test_the_note_says_how_to_have_more():
    notes = comparison_notes({"settings": {"reduced": ["pairs", "batch_sizes"], "budget_seconds": 30}})
    [note] = [line for line in notes if "Evaluation reduced" in line]
    assert "take 30 s" in note and "evaluation.pairs, evaluation.batch_sizes" in note
    assert not any("Evaluation reduced" in line for line in comparison_notes({"settings": {}}))
