"""The grid point is chosen as the papers choose it, and its runs are averaged as they average."""

import statistics

import pytest

from limbeck.evaluation.grid_summary import Runs, average, choose, in_percent
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.evaluation.tasks import TASKS


def row(rate, seed, value, **scores):
    settings = {"learning_rate": rate, "epochs": 3}
    return {"settings": settings, "seed": seed, "select": "validation",
            "scores": {"validation": {"accuracy": value, "f1": 1 - value, **scores}}}  # fmt: skip


@pytest.fixture
def settings():
    return PROTOCOLS["minilmv2"].settings(TASKS["mrpc"])


def test_the_mean_over_seeds_decides(settings):
    rows = [row(1e-5, 1, 0.9), row(1e-5, 2, 0.5), row(2e-5, 1, 0.8), row(2e-5, 2, 0.7)]
    chosen = choose(rows, TASKS["mrpc"], settings, 2)
    assert chosen.settings["learning_rate"] == 2e-5
    assert [r["seed"] for r in chosen.rows] == [1, 2]
    assert (chosen.wanted, chosen.points) == (2, 2)


def test_one_best_run_decides_where_the_paper_reports_a_single_model(settings):
    rows = [row(1e-5, 1, 0.9), row(1e-5, 2, 0.5), row(2e-5, 1, 0.8), row(2e-5, 2, 0.7)]
    best = settings.model_copy(update={"pick": "best"})
    chosen = choose(rows, TASKS["mrpc"], best, 2)
    assert (chosen.settings["learning_rate"], [r["seed"] for r in chosen.rows]) == (1e-5, [1])


def test_points_that_lack_runs_are_passed_over_and_ties_go_to_the_first(settings):
    rows = [row(1e-5, 1, 0.9), row(2e-5, 2, 0.6), row(2e-5, 1, 0.6), row(3e-5, 1, 0.6), row(3e-5, 2, 0.6)]
    chosen = choose(rows, TASKS["mrpc"], settings, 2)
    assert chosen.settings["learning_rate"] == 2e-5
    assert [r["seed"] for r in chosen.rows] == [1, 2]


def test_the_metric_of_the_protocol_decides(settings):
    rows = [row(1e-5, 1, 0.9), row(2e-5, 1, 0.2)]
    by_f1 = settings.model_copy(update={"metric": "f1"})
    assert choose(rows, TASKS["mrpc"], by_f1, 1).settings["learning_rate"] == 2e-5


def test_mean_and_sample_deviation():
    runs = in_percent([0.5, 0.6, 0.8])
    assert runs.mean == pytest.approx(63.3333333)
    assert runs.deviation == pytest.approx(statistics.stdev([50, 60, 80]))
    assert Runs((50.0,)).deviation is None


def test_averages_are_taken_run_by_run_where_they_can_be():
    whole = average([Runs((50.0, 60.0)), Runs((70.0, 90.0))])
    assert whole.values == (60.0, 75.0)
    mixed = average([Runs((50.0, 60.0)), Runs((70.0,))])
    assert mixed.values == (62.5,)
    assert mixed.deviation is None
