"""Students of tasks are scored as they are: by step while they are trained, and beside their teacher at the end."""

import json
import shutil
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from tokenizers import Tokenizer

import limbeck
from limbeck.core.progress import Count
from limbeck.evaluation.evaluators import head_outputs
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.models.loading import load_model
from limbeck.recipe import load_recipe, plan_run
from limbeck.report.quality_notes import comparison_notes
from limbeck.training.callbacks import ProgressReporter
from limbeck.training.corpora import build_corpora
from limbeck.training.run_tokenizers import load_tokenizers
from limbeck.training.task_scores import measure_tasks
from tests.support.mrpc_recipe import mrpc_recipe
from tests.support.task_files import write_table
from tests.support.training import (
    assert_ends_like,
    assert_equal,
    elsewhere,
    kill_at,
    log_of,
    student_of,
    without_clocks,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A recipe on MRPC, four steps an epoch, and its run."""
    recipe = mrpc_recipe(tmp_path_factory.mktemp("mrpc"))
    limbeck.distill(recipe)
    return recipe


def scores_in(log):
    return [line for line in without_clocks(log) if any(key.startswith("development_") for key in line)]


def test_the_student_is_scored_by_step_as_limbeck_evaluate_scores_it(whole, tmp_path):
    lines = scores_in(log_of(whole))
    assert [line["step"] for line in lines] == [3, 4, 6, 7], "every third step, the end of the epoch, the last step"
    assert all("loss" not in line for line in lines)
    assert [line["step"] for line in log_of(whole) if "loss" in line] == list(range(1, 8)), "no loss is lost"
    (found,) = json.loads(Path(whole["output"], "run.json").read_text())["evaluation"]["development"]
    assert (found["task"], found["split"], found["rows"], found["stage"]) == (
        "mrpc",
        "validation",
        12,
        "output_distribution",
    )
    assert {f"development_{name}": value for name, value in found["student"].items()}.items() <= lines[-1].items()
    student = str(Path(whole["output"], "student"))
    data, settings = whole["corpus"]["data"], ["length=32"]
    result = limbeck.evaluate([whole["teacher"]["model"], student], "mrpc", output=tmp_path / "out", data=data,
                              as_is=True, overrides=settings)  # fmt: skip
    for model, scores in zip(result.summary["models"], (found["teacher"], found["student"]), strict=True):
        metrics = model["columns"]["mrpc"]["metrics"]
        assert {name: figure["mean"] for name, figure in metrics.items()} == {n: 100 * s for n, s in scores.items()}
    assert sum(map(sum, found["confusion"])) == 12 and found["labels"] == list(TASKS["mrpc"].labels)
    assert "task" not in result.summary


def test_scores_are_in_the_table_of_the_run_and_those_of_one_answer_are_no_results_of_its_card(whole):
    run = Path(whole["output"])
    table, card = ((run / name).read_text() for name in ("evaluation.md", "student/README.md"))
    assert "| Accuracy on mrpc, validation |" in table
    assert "Scored on the 12 rows of mrpc, validation, without fine-tuning (few, so the scores are rough)" in table
    assert "for every row of mrpc, validation," in table
    assert "model-index" not in yaml.safe_load(card.split("\n---\n")[0].removeprefix("---\n"))


def test_progress_tells_of_the_rows_until_all_are_scored(whole, tmp_path):
    told = []
    plan = plan_run(load_recipe(whole | {"evaluation": {"tasks": ["mrpc"]}}))
    teacher = load_model(whole["teacher"]["model"], head="classification")
    student = Path(whole["output"], "student")
    measure_tasks(plan, load_tokenizers(plan), student, lambda *_, **__: teacher, lambda *said: told.append(said))
    assert [share for share, *_ in told] == [0.5, 1.0], "two models"
    assert told[0][1:] == ("rows of MRPC", Count(12, "rows"))


def test_scores_by_step_show_their_rows(whole, tmp_path, monkeypatch):
    """So do the scores that choose the best step, which are measured once more."""
    monkeypatch.setattr(head_outputs, "EVALUATION_BATCH", 5)
    shown = []

    @contextmanager
    def activity(self, what):
        yield lambda *amount: shown.append((what, *amount))

    monkeypatch.setattr(ProgressReporter, "activity", activity)
    recipe = elsewhere(whole, tmp_path / "run")
    best = {"load_best_model_at_end": True, "metric_for_best_model": "accuracy"}
    recipe["stages"][0]["training"] |= {"max_steps": 2, "eval_steps": 2, "save_steps": 2, **best}
    limbeck.distill(recipe)
    scores = [amount for what, *amount in shown if what == "scores on development rows"]
    assert scores == 2 * [[5, 12, "rows"], [10, 12, "rows"], [12, 12, "rows"]]


def test_a_student_with_one_answer_is_called_that_below_the_table():
    figures = {"task": "mrpc", "split": "validation", "rows": 408, "student": {"accuracy": 0.68}, "teacher": {}}
    said = [comparison_notes({"development": [figures | more]}) for more in ({}, {"only_answer": "equivalent"})]
    assert [
        any("predicts 'equivalent' for every row of mrpc, validation," in line for line in each) for each in said
    ] == [
        False,
        True,
    ]


def test_the_tokenizer_of_the_student_pads_no_text(whole):
    lengths = [
        len(Tokenizer.from_file(str(Path(folder, "tokenizer.json"))).encode("a").ids)
        for folder in (whole["teacher"]["model"], Path(whole["output"], "student"))
    ]
    assert lengths == [64, 3]


def test_a_task_without_development_rows_is_told(whole, tmp_path):
    place, said = tmp_path / "MRPC", StringIO()
    place.mkdir()
    shutil.copy(Path(whole["corpus"]["data"], "MRPC", "train.tsv"), place)
    plan = plan_run(load_recipe(whole | {"corpus": whole["corpus"] | {"data": str(tmp_path)}}))
    (corpus,) = build_corpora(plan, load_tokenizers(plan).of_stage, Console(file=said, width=200))
    assert (
        "MRPC has no development rows in its files, so some training rows are held out in their place"
        in said.getvalue()
    )
    assert 0 < len(corpus.held_out) < len(corpus.train)


def test_a_resumed_run_has_the_same_lines(whole, tmp_path):
    recipe = elsewhere(whole, tmp_path / "run")
    kill_at(recipe, 5)
    assert_ends_like(recipe, whole)
    assert without_clocks(log_of(recipe)) == without_clocks(log_of(whole))


def test_scoring_changes_no_weight_and_a_task_that_cannot_be_read_says_why(whole, tmp_path):
    names = TASKS["mrpc"].labels
    write_table(tmp_path / "dev.tsv", ("a", "b", "label"), [("the model", "it is", names[0]), ("we", "are", "neither")])
    own = tmp_path / "own.yaml"
    own.write_text(f"""{{name: own, type: pair, columns: {{text: a, pair: b}}, labels: {list(names)},
        files: {{train: train.tsv, validation: dev.tsv}}}}""")
    recipe = elsewhere(whole, tmp_path / "run", evaluation=whole["evaluation"] | {"tasks": [str(own), "mrpc"]})
    recipe["stages"][0]["training"]["eval_strategy"] = "no"
    found = limbeck.distill(recipe).metrics["development"]
    assert_equal(student_of(recipe), student_of(whole))
    assert scores_in(log_of(recipe)) == []
    assert [(one["task"], one.get("split"), one.get("stage")) for one in found] == [
        (str(own), None, None), ("mrpc", "validation", None)]  # fmt: skip
    assert "dev.tsv:3 has the label 'neither'" in found[0]["unavailable"]
    assert found[1]["rows"] == 12
