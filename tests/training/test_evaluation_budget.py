"""The default evaluation of a run takes a tenth of its training or 30 s: what it measures is halved until it fits."""

import pytest

from limbeck.errors import LimbeckError
from limbeck.recipe.evaluation import EvaluationSpec
from limbeck.report.quality import comparison_notes
from limbeck.training.evaluation import Amounts, TimeLeft, choose_amounts


def chosen(seconds, *, budget=30.0, retrieves=True, **spec):
    return choose_amounts(
        EvaluationSpec(**spec), of_vectors=True, retrieves=retrieves, budget=budget, seconds_of_text=lambda: seconds
    )


@pytest.mark.parametrize("seconds", [0.0, 1e-5, 0.004])
def test_what_fits_is_measured_whole(seconds):
    found = chosen(seconds)
    assert (found.pairs, found.retrieval_pairs, found.reduced) == (1500, 700, ())


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.2])
def test_what_does_not_fit_is_halved_until_it_does(seconds):
    found, more = chosen(seconds), chosen(seconds, budget=3000.0)
    cost = 2 * (found.pairs + found.retrieval_pairs) * seconds
    assert cost <= 0.6 * 30 and 2 * cost > 0.6 * 30 * 0.9 and found.reduced[:2] == ("pairs", "retrieval_pairs")
    assert more.pairs == 1500 and not more.reduced
    assert chosen(seconds * 1.02).pairs == found.pairs, "as much on a machine that is a little slower"


def test_what_the_recipe_says_is_measured_whatever_it_costs():
    found = chosen(1.0, pairs=3000, retrieval_pairs=500)
    assert (found.pairs, found.retrieval_pairs, found.reduced) == (3000, 500, ())
    found = chosen(1.0, pairs=3000)
    assert found.pairs == 3000 and found.retrieval_pairs < 700 and found.reduced == ("retrieval_pairs",)


def test_what_is_off_costs_nothing():
    found = chosen(0.001, quality=False)
    assert (found.pairs, found.retrieval_pairs, found.reduced) == (0, 0, ())
    assert chosen(0.001, retrieves=False).retrieval_pairs == 0


def left_after(spent, a_pass=0.0, **spec):
    """Return what is left of 30 s after some seconds; a pass takes so long and moves the clock."""
    now = [0.0]

    def measure():
        now[0] += a_pass
        return a_pass

    found = TimeLeft(EvaluationSpec(**spec), Amounts(1500, 700, 30.0), measure, clock=lambda: now[0])
    now[0] = spent
    return found


@pytest.mark.parametrize(("spent", "pool"), [(1.0, 700), (12.0, 700), (15.0, 175), (25.0, 21)])
def test_the_pool_follows_what_the_agreement_took(spent, pool):
    found = left_after(spent)
    assert (found.choose_pool(), list(found.reduced)) == (pool, [] if pool == 700 else ["retrieval_pairs"])
    assert left_after(spent, retrieval_pairs=500).choose_pool() == 700, "as chosen, where the recipe says it"


@pytest.mark.parametrize(
    ("spent", "a_pass", "sizes"),
    [(5, 0.02, (1, 32)), (13, 0.16, (1, 8)), (18, 0.2, (1, 4)), (18, 0.5, (1, 2)), (20, 1.2, (1,))],
)
def test_the_latency_fits_into_what_is_left(spent, a_pass, sizes):
    found = left_after(spent, a_pass)
    chosen_sizes, seconds = found.choose_latency()
    assert chosen_sizes == sizes and 0 < seconds <= 12
    rest = seconds / len(sizes) + 7 * a_pass * sizes[-1] if len(sizes) > 1 else max(seconds, 7 * a_pass)
    assert rest <= found.left() + 1e-9
    assert list(found.reduced) == ([] if sizes == (1, 32) else ["batch_sizes"])


def test_without_time_there_is_no_latency_unless_it_is_asked_for():
    with pytest.raises(LimbeckError, match="no time was left for it; .* set evaluation.batch_sizes"):
        left_after(31, 0.1).choose_latency()
    assert left_after(31, 0.1, batch_sizes=[64]).choose_latency() == ((64,), 12.0)
    assert left_after(31, 0.1, latency_seconds=60).choose_latency() == ((1, 32), 60.0)


def test_the_note_tells_the_time_of_development_rows():
    seen = {"settings": {"budget_seconds": 30}, "seconds": {"development": 38.4}}
    assert any("development rows took 38 s, beside the 30 s" in line for line in comparison_notes(seen))
    assert not any("took" in line for line in comparison_notes({"seconds": {"development": 38.4}}))


def test_the_note_says_how_to_have_more():
    notes = comparison_notes({"settings": {"reduced": ["pairs", "batch_sizes"], "budget_seconds": 30}})
    [note] = [line for line in notes if "Evaluation reduced" in line]
    assert "take 30 s" in note and "evaluation.pairs, evaluation.batch_sizes" in note
    assert not any("Evaluation reduced" in line for line in comparison_notes({"settings": {}}))
