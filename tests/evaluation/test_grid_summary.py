"""Choosing a grid point as the papers do, notes gathered by kind, and predictions as leaderboard files."""

import statistics

import pytest

from limbeck.core.studies import EvaluationCell, Figure
from limbeck.errors import OutputError
from limbeck.evaluation.grid import write_submissions
from limbeck.evaluation.grid_summary import average, choose, gather_notes
from limbeck.evaluation.protocols import PROTOCOLS
from limbeck.evaluation.submission import save_predictions
from limbeck.evaluation.tasks import TASKS


def row(rate, seed, value, **scores):
    settings = {"learning_rate": rate, "epochs": 3}
    scores = {"validation": {"accuracy": value, "f1": 1 - value, **scores}}
    return EvaluationCell(settings=settings, seed=seed, select="validation", scores=scores)


@pytest.fixture
def settings():
    return PROTOCOLS["minilmv2"].settings(TASKS["mrpc"])


def test_the_mean_over_seeds_decides(settings):
    rows = [row(1e-5, 1, 0.9), row(1e-5, 2, 0.5), row(2e-5, 1, 0.8), row(2e-5, 2, 0.7)]
    chosen = choose(rows, TASKS["mrpc"], settings, 2)
    assert chosen.cells[0].settings["learning_rate"] == 2e-5
    assert [cell.seed for cell in chosen.cells] == [1, 2]
    assert (chosen.wanted, chosen.points) == (2, 2)


def test_one_best_run_decides_where_the_paper_reports_a_single_model(settings):
    rows = [row(1e-5, 1, 0.9), row(1e-5, 2, 0.5), row(2e-5, 1, 0.8), row(2e-5, 2, 0.7)]
    best = settings.model_copy(update={"pick": "best"})
    chosen = choose(rows, TASKS["mrpc"], best, 2)
    assert (chosen.cells[0].settings["learning_rate"], [cell.seed for cell in chosen.cells]) == (1e-5, [1])


def test_points_that_lack_runs_are_passed_over_and_ties_go_to_the_first(settings):
    rows = [row(1e-5, 1, 0.9), row(2e-5, 2, 0.6), row(2e-5, 1, 0.6), row(3e-5, 1, 0.6), row(3e-5, 2, 0.6)]
    chosen = choose(rows, TASKS["mrpc"], settings, 2)
    assert chosen.cells[0].settings["learning_rate"] == 2e-5
    assert [cell.seed for cell in chosen.cells] == [1, 2]


def test_the_metric_of_the_protocol_decides(settings):
    rows = [row(1e-5, 1, 0.9), row(2e-5, 1, 0.2)]
    by_f1 = settings.model_copy(update={"metric": "f1"})
    assert choose(rows, TASKS["mrpc"], by_f1, 1).cells[0].settings["learning_rate"] == 2e-5


def test_mean_and_sample_deviation():
    figure = Figure.of_runs([50.0, 60.0, 80.0])
    assert figure.mean == pytest.approx(63.3333333)
    assert figure.deviation == pytest.approx(statistics.stdev([50, 60, 80]))
    assert Figure.of_runs([50.0]).deviation is None


@pytest.mark.parametrize(("second", "runs"), [([70.0, 90.0], [60.0, 75.0]), ([70.0], [62.5])])
def test_averages_are_taken_run_by_run_where_they_can_be(second, runs):
    scores = {"a": Figure.of_runs([50.0, 60.0]), "b": Figure.of_runs(second)}
    found = average(["a", "b"], scores, 2)
    assert found.runs == runs and found.complete
    assert (found.deviation is None) == (len(runs) == 1)
    assert average(["a"], scores, 2) is None


def test_a_line_for_each_kind():
    assert gather_notes(
        [
            "RTE train: 24 rows, but 2490 are published",
            "RTE validation: 277 rows, published 277",
            "MNLI train: 3 rows, but 392,702 are published",
            "RTE train: 1,024 x row cut to the longest length (such as row 17)",
            "AX: not there: test",
            "XNLI: not there: test.ar, test.bg",
            "MNLI train: 3 rows, but 392,702 are published",
            "MNLI validation_matched: 2 x row cut to the longest length (such as row 1, row 9)",
        ]
    ) == [
        "RTE train: 24 rows, but 2490 are published; likewise MNLI train",
        "RTE validation: 277 rows, published 277",
        "RTE train: 1,024 x row cut to the longest length (such as row 17); likewise MNLI validation_matched",
        "AX: not there: test; likewise XNLI",
    ]


def test_many_subjects_are_counted_and_a_single_note_stays_as_it_is():
    notes = [f"Task {letter}: {place} rows" for place, letter in enumerate("abcdef")]
    assert gather_notes(notes) == ["Task a: 0 rows; likewise Task b, Task c, Task d and 2 more"]
    assert gather_notes(["no subject at all"]) == ["no subject at all"]
    assert gather_notes([]) == []


RTE = TASKS["rte"]


@pytest.fixture
def predicted(tmp_path):
    saved = save_predictions(tmp_path, "a", {"test": [0, 1, 1]})
    return [EvaluationCell(predictions=saved, select="validation", scores={"validation": {"accuracy": 0.5}})]


def test_the_best_run_is_written(tmp_path, predicted):
    (path,) = write_submissions(tmp_path, "org/model", RTE, predicted, "accuracy")
    assert path == tmp_path / "submissions" / "org-model" / "RTE.tsv"
    first, second = RTE.labels
    assert [line.split("\t")[1] for line in path.read_text().splitlines()[1:]] == [first, second, second]


@pytest.mark.parametrize("content", ["{", "[]", "7", '{"test": 3}', '{"test": {"a": 1}}'])
def test_damaged_predictions(tmp_path, predicted, content):
    (tmp_path / predicted[0].predictions).write_text(content)
    with pytest.raises(OutputError, match="a.json' is damaged"):
        write_submissions(tmp_path, "model", RTE, predicted, "accuracy")


def test_missing_predictions(tmp_path, predicted):
    (tmp_path / predicted[0].predictions).unlink()
    with pytest.raises(OutputError, match="a.json' is missing"):
        write_submissions(tmp_path, "model", RTE, predicted, "accuracy")
