"""An evaluator from outside the package: the example's, and what an evaluator is asked for."""

import ast
import math
import runpy
from pathlib import Path

import pytest

import limbeck
from limbeck.core.folder_lock import is_worked_in
from limbeck.errors import PluginError, RecipeError
from limbeck.evaluation.evaluators.evaluator import EVALUATORS, Evaluator, register_as_evaluator
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.run.evaluation import run_evaluation
from limbeck.evaluation.run.results_file import ResultsFile
from tests.support.plugins import forgetting
from tests.support.tasks import tiny_folder

EXAMPLE = Path(__file__).parents[2] / "examples/own_evaluator.py"


@pytest.fixture(autouse=True)
def _forgotten_afterwards():
    with forgetting():
        yield


def test_the_example_is_short():
    tree = ast.parse(EXAMPLE.read_text())
    (evaluator,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    assert evaluator.end_lineno - evaluator.lineno < 15


def test_the_example_scores_models_and_finished_cells_are_not_run_again(tmp_path, monkeypatch):
    runpy.run_path(str(EXAMPLE))
    models = tuple(str(tiny_folder(tmp_path / name, seed=seed)) for seed, name in enumerate(("a", "b")))
    request = EvaluationRequest(models, "closeness:sentences", tmp_path / "out")
    outcome = run_evaluation(request)
    (column,) = outcome.summary.columns
    assert (column.key, column.metric, outcome.failed) == ("closeness:sentences", "mean_cosine", 0)
    figures = [model.columns[column.key].mean for model in outcome.summary.models]
    assert len(set(figures)) == 2 and all(-100 <= figure <= 100 for figure in figures)
    monkeypatch.setattr(type(EVALUATORS["closeness"]), "score", lambda *_: pytest.fail("scored again"))
    again = run_evaluation(request)
    assert [model.columns for model in again.summary.models] == [model.columns for model in outcome.summary.models]
    assert len(ResultsFile(tmp_path / "out").read()) == 2


def test_an_evaluator_that_fails_leaves_the_others(tmp_path):
    @register_as_evaluator()
    class Failing(Evaluator):
        name = "failing"
        metrics = ("figure",)

        def score(self, model, task, report):
            # The folder tells reports that the evaluation is running.
            assert is_worked_in(tmp_path / "out")
            if task == "bad":
                raise ValueError("no such task")
            return {"figure": 0.5}

    model = str(tiny_folder(tmp_path))
    outcome = run_evaluation(EvaluationRequest((model,), "failing:good,failing:bad", tmp_path / "out"))
    assert not is_worked_in(tmp_path / "out")
    assert outcome.failed == 1 and outcome.summary.models[0].columns["failing:good"].mean == 50
    assert any("no such task" in note for note in outcome.summary.notes)


def test_unknown_evaluators_and_evaluators_without_metrics_are_refused(tmp_path):
    with pytest.raises(RecipeError, match="Unknown evaluator 'nobody'"):
        run_evaluation(EvaluationRequest(("m",), "nobody:task", tmp_path))
    with pytest.raises(PluginError, match="it has no metrics"):

        @register_as_evaluator()
        class Nameless(Evaluator):
            name = "nameless"

            def score(self, model, task, report):
                return {}


@pytest.mark.parametrize(
    ("figure", "problem"),
    [
        (87.5, "87.5 as figure, but scores must be from -1 to 1: return shares, not percent."),
        (math.nan, "nan as figure, which is no score: return 0 where the metric is undefined."),
    ],
)
def test_a_score_that_is_none_is_a_failure_that_says_so(tmp_path, figure, problem):
    @register_as_evaluator()
    class Percent(Evaluator):
        name = "percent"
        metrics = ("figure",)

        def score(self, model, task, report):
            return {"figure": figure}

    model = str(tiny_folder(tmp_path))
    outcome = run_evaluation(EvaluationRequest((model,), "percent:task", tmp_path / "out"))
    (row,) = ResultsFile(tmp_path / "out").read()
    assert outcome.failed == 1 and row.status == "failed"
    assert row.error == f"The evaluator 'percent' returned {problem}"


def test_a_metric_that_is_left_out_is_a_failure(tmp_path):
    @register_as_evaluator()
    class Renamed(Evaluator):
        name = "renamed"
        metrics = ("main", "further")

        def score(self, model, task, report):
            return {"further": 0.5}

    model = str(tiny_folder(tmp_path))
    outcome = run_evaluation(EvaluationRequest((model,), "renamed:task", tmp_path / "out"))
    (row,) = ResultsFile(tmp_path / "out").read()
    assert outcome.summary.models[0].columns == {}
    assert (
        row.error
        == "The evaluator 'renamed' returned no score for its metric 'main'; return a score for each of its metrics."
    )


def test_the_tables_of_an_evaluator_without_settings_say_that_nothing_was_trained(tmp_path):
    runpy.run_path(str(EXAMPLE))
    model = tiny_folder(tmp_path / "model")
    limbeck.evaluate([model], "closeness:sentences", output=tmp_path / "out")
    table = (tmp_path / "out/evaluation_table.md").read_text()
    assert table.startswith("# Models as they are, in percent")
    assert "closeness:sentences: nothing trained" in table
