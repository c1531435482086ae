"""Successive halving with known scores: who is dropped when, who is ranked where; and the rungs."""

import math
from types import SimpleNamespace

import pytest
from rich.console import Console

from limbeck.errors import RecipeError
from limbeck.search import teacher_layer
from limbeck.search.teacher_layer import LayerCandidate, Rung, ends_of, halve, rungs_of_training

RUNGS = [Rung(8, 10), Rung(4, 20), Rung(2, 40)]
END = 70


class FakeProxy:
    """Trains nothing: a student is (its candidate's index, the step that it is at)."""

    def __init__(self, diverges=()):
        self.diverges = dict(diverges)

    def train(self, plans, *, cuts):
        active, steps = list(range(len(plans))), dict.fromkeys(range(len(plans)), 0)
        for step in [*sorted(cuts), END]:
            active = [index for index in active if self.diverges.get(index, math.inf) >= step]
            steps |= dict.fromkeys(active, step)
            if step in cuts:
                kept = cuts[step]({index: (index, step) for index in active})
                active = [index for index in active if index in kept]
        return [
            SimpleNamespace(
                student=(index, steps[index]),
                steps=steps[index],
                diverged=index in self.diverges and steps[index] < END,
                held_out={"loss": 0.1 * index},
            )
            for index in range(len(plans))
        ]


class FakeTrial:
    """Keeps what is reported of it."""

    def __init__(self, index, reported):
        self._index, self._reported = index, reported

    def report(self, score, step):
        self._reported.append((self._index, step, score))


def run(monkeypatch, score, *, rungs=RUNGS, candidates=8, diverges=()):
    """Train candidates whose scores are `score(index, step)`; returns them and what was reported."""
    monkeypatch.setattr(teacher_layer, "plain_copy", lambda student, plan: student)
    reported = []

    def measure(student, plan, name):
        value = score(*student)
        return {"agreement": value + 1, "explained": value - 1}

    found = [LayerCandidate(index + 1, FakeTrial(index, reported)) for index in range(candidates)]
    halve(FakeProxy(diverges), ["plan"] * candidates, found, rungs, measure, Console(quiet=True))
    return found, reported


def ranking(candidates):
    """The candidates' indices, best first."""
    return sorted(range(len(candidates)), key=lambda index: candidates[index].rank)


def test_the_lower_half_is_dropped_at_every_rung(monkeypatch):
    found, reported = run(monkeypatch, lambda index, step: index + step / 100)
    assert [one.state for one in found] == ["cut"] * 6 + ["trained"] * 2
    assert [one.steps for one in found] == [10] * 4 + [30] * 2 + [70] * 2
    assert [sorted(one.scores) for one in found] == [[10]] * 4 + [[10, 30]] * 2 + [[10, 30, 70]] * 2
    assert ranking(found) == [7, 6, 5, 4, 3, 2, 1, 0]
    expected = [(i, 10) for i in range(8)] + [(i, 30) for i in range(4, 8)] + [(6, 70), (7, 70)]
    assert [(index, step) for index, step, _ in reported] == expected
    assert [score for _, _, score in reported] == pytest.approx([index + step / 100 for index, step in expected])
    assert found[3].own_loss == pytest.approx(0.3)


def test_what_counts_is_the_score_at_the_rung_and_not_before(monkeypatch):
    # Candidate 0 is the best at first, and the last of those that are left at the second rung.
    found, _ = run(monkeypatch, lambda index, step: (8 - index) if step == 10 else index)
    assert [one.steps for one in found] == [30, 30, 70, 70, 10, 10, 10, 10]
    assert ranking(found) == [3, 2, 1, 0, 4, 5, 6, 7]


def test_candidates_that_diverge_are_the_last_and_take_nobodys_place(monkeypatch):
    found, _ = run(monkeypatch, lambda index, step: float(index), diverges={7: 5, 5: 20})
    assert found[7].state == "diverged" and found[7].scores == {}
    assert found[5].state == "diverged" and sorted(found[5].scores) == [10]
    # 3 to 6 go on from the first rung, and of those 3, 4 and 6 are there at the second.
    assert [found[index].steps for index in (0, 1, 2)] == [10, 10, 10]
    assert ranking(found) == [6, 4, 3, 2, 1, 0, 5, 7]


def test_scores_that_are_no_number_are_the_lowest(monkeypatch):
    found, _ = run(monkeypatch, lambda index, step: math.nan if index in (2, 6) else float(index))
    assert found[2].steps == found[6].steps == 10
    assert ranking(found)[:2] == [7, 5]
    found, _ = run(monkeypatch, lambda index, step: math.nan, rungs=[], candidates=3)
    assert [one.state for one in found] == ["diverged"] * 3


@pytest.mark.parametrize("rungs", [[], [Rung(8, 70)]], ids=["none", "one"])
def test_without_halving_all_are_trained_to_the_end(monkeypatch, rungs):
    found, _ = run(monkeypatch, lambda index, step: -index, rungs=rungs)
    assert {one.steps for one in found} == {70}
    assert ranking(found) == list(range(8))


def test_candidates_of_equal_score_rank_in_their_order():
    assert ranking([LayerCandidate(1, None, {10: {"score": 1.0}}) for _ in range(4)]) == [0, 1, 2, 3]


@pytest.mark.parametrize(("candidates", "factor"), [(8, 2), (12, 2), (24, 2), (24, 3), (2, 2), (3, 2), (7, 4)])
@pytest.mark.parametrize("steps", [100, 1000, 20_000])
def test_a_training_is_divided_so_that_rounds_cost_the_same(candidates, factor, steps):
    rungs = rungs_of_training(candidates, steps, factor)
    assert rungs[0].candidates == candidates and ends_of(rungs)[-1] == steps
    costs = [rung.candidates * rung.steps for rung in rungs]
    assert max(costs) - min(costs) <= 2 * candidates, "but for rounding"


def test_a_training_that_is_too_short_for_its_rounds_is_refused():
    assert rungs_of_training(8, 7, 2) == [Rung(8, 1), Rung(4, 2), Rung(2, 4)]
    with pytest.raises(RecipeError, match="3 steps are too few for 3 rounds of 8 candidates; give more, or --no-halv"):
        rungs_of_training(8, 3, 2)
    with pytest.raises(RecipeError, match="factor of 1 drops no candidate"):
        rungs_of_training(8, 100, 1)
