"""The score of a student that gives all rows one answer is called meaningless, or left out, in every output."""

import copy
import json
from types import SimpleNamespace

import pytest

from limbeck.core.blocks import Figure, rounded
from limbeck.core.records import RunEvaluation
from limbeck.core.studies import ColumnFigure, Evaluation
from limbeck.core.studies import Figure as ScoreFigure
from limbeck.report.collect import collect
from limbeck.report.evaluation_sections import evaluation_highlights
from limbeck.report.quality import comparison_rows
from limbeck.report.run_quality import quality_of
from limbeck.report.runs_beside import run_blocks
from limbeck.report.scores import only_answer_notes
from limbeck.report.sections import Highlight
from limbeck.report.student_results import development_results
from limbeck.report.task_scores import hub_results, scores_of_model

DEVELOPMENT = {
    "task": "mrpc", "kind": "classification", "split": "validation", "rows": 10, "teacher": {"accuracy": 0.9},
    "student": {"accuracy": 0.6}, "labels": ["no", "yes"], "confusion": [[3, 1], [1, 5]],
}  # fmt: skip
HELD_OUT = {
    "task": "classification", "metric": "accuracy", "rows": 20, "teacher": 0.9, "student": 0.6, "agreement": 0.7,
    "stage": "one",
}  # fmt: skip
WARNING = "The student gives every row of stage 'one' the same answer, so its scores are meaningless."


def test_the_figure_of_held_out_rows(copied, page_of):
    task = HELD_OUT | {"only_answer": True}
    page = page_of(copied(edit={"evaluation": {"task": task}}))
    label = "accuracy on held-out rows (the teacher may have been trained on them)"
    detail = "0.600 is meaningless, since all rows get one answer"
    assert page.parts[0].highlights[0] == Highlight("–", label, detail)
    assert WARNING in page.warnings()

    without_labels = page_of(copied(name="unlabelled", edit={"evaluation": {"task": task | {"labelled": False}}}))
    label = "agreement with the teacher on held-out rows without labels"
    detail = "0.700 is meaningless, since all rows get one answer"
    assert without_labels.parts[0].highlights[0] == Highlight("–", label, detail)


def test_rows_of_the_table_of_teacher_and_student():
    for figures in (HELD_OUT, HELD_OUT | {"agreement": None}, HELD_OUT | {"labelled": False}):
        rows = comparison_rows({"task": figures | {"only_answer": True}})
        assert {row.change for row in rows} == {"meaningless"}
        assert "meaningless" not in {row.change for row in comparison_rows({"task": figures})}


def test_the_result_of_a_run_in_a_table_of_folders(copied, page_of):
    collapsed = copied(edit={"evaluation.development": [DEVELOPMENT | {"only_answer": "no"}]})
    page = page_of(collapsed, copied(name="other"))
    assert "(meaningless, since all rows get one answer)" in str(page.parts[0])


def test_results_of_a_card():
    # A score that is no better than that of the most frequent class, 0.6, would not be published either.
    above_chance = DEVELOPMENT | {"student": {"accuracy": 0.8}}
    evaluation = RunEvaluation.read({"development": [above_chance, above_chance | {"only_answer": "no"}]})
    assert len(list(development_results(evaluation, "text-classification"))) == 1

    column = {"key": "rte", "title": "RTE", "task": "rte", "kind": "classification", "metric": "accuracy"}
    figure = {"mean": 50.0, "runs": [50.0]}
    for only_answer, count in ((None, 1), ("no", 0)):
        summary = Evaluation.read({
            "preset": "quick",
            "columns": [column | {"splits": ["validation"]}],
            "models": [{"name": "here", "columns": {"rte": figure | {"only_answer": only_answer}}}],
        })  # fmt: skip
        scores = scores_of_model(summary.models[0], summary)
        assert len(list(hub_results(scores))) == count


def figures_of(blocks):
    return {block.title: block for block in blocks if isinstance(block, Figure)}


def test_runs_beside_each_other(copied):
    development = [DEVELOPMENT | {"student": {"accuracy": 0.6 + 0.01 * number}} for number in range(5)]
    development[-1]["only_answer"] = "no"
    folders = []
    for number, scores in enumerate(development):
        folders.append(copied(name=f"run{number}", edit={"evaluation.development": [scores]}))
    runs = [(run.title, run) for run in collect(folders)]
    assert quality_of(runs[-1][1]).caution
    drawing = figures_of(run_blocks(runs))["Quality of models"].drawing
    assert [row.value for row in drawing.rows] == [0.9, 0.6, 0.61, 0.62, 0.63]
    assert drawing.reference == 0.9, "the teacher is drawn, though the last run has no figure of it"


def test_methods_of_a_comparison(copied, page_of):
    def collapse(*methods, counts=None):
        def edit(record):
            for block in record["summary"]["blocks"]:
                for row in block["rows"]:
                    if row["method"] in methods:
                        row["columns"]["rte"]["only_answer"] = "no"
                        row["columns"]["rte"]["one_answer_runs"] = counts

        return edit

    names = ("hidden_states", "minilmv2")
    [part] = page_of(copied("comparison-with-costs", "one", collapse(names[0]))).parts
    assert part.highlights[1].detail.endswith("rank 1 of 1: minilmv2, layer auto")
    details = {
        (2, 2): "meaningless, since all rows get one answer",
        (1, 2): "meaningless, since in 1 of 2 runs all rows get one answer",
        # Older records do not have the number.
        None: "meaningless, since in at least 1 of 2 runs all rows get one answer",
    }
    for number, (counts, detail) in enumerate(details.items()):
        edit = collapse(*names, counts=counts and list(counts))
        [part] = page_of(copied("comparison-with-costs", f"both{number}", edit)).parts
        assert part.highlights[1] == Highlight("–", "RTE of 2x32", detail)


def column_figure(runs, **more):
    metrics = {"accuracy": ScoreFigure.of_runs(runs)}
    matthews = more.pop("matthews", None)
    if matthews is not None:
        metrics["matthews"] = ScoreFigure.of_runs(matthews)
    return ColumnFigure.of_runs(runs, metrics=metrics, **more)


@pytest.mark.parametrize(
    ("figure", "clause"),
    [
        (column_figure([84.1, 68.4, 83.8], only_answer="no", one_answer_runs=[1, 3]),
         "in 1 of 3 runs every row gets the same answer ('no'), so the mean is meaningless"),
        (column_figure([68.4, 68.4], only_answer="no", one_answer_runs=[2, 2]),
         "every row gets the same answer ('no'), so the score is meaningless"),
        (column_figure([84.1, 70.0], only_answer="no", one_answer_runs=[2, 6]),
         "in 2 of 6 runs every row gets the same answer ('no'), so the mean is meaningless"),
        # Older records have no number. A single run, and Matthews' correlation, tell it.
        (column_figure([68.4], only_answer="no"),
         "every row gets the same answer ('no'), so the score is meaningless"),
        (column_figure([84.1, 68.4, 83.8], only_answer="no"),
         "in at least 1 of 3 runs every row gets the same answer ('no'), so the mean is meaningless"),
        (column_figure([84.1, 68.4, 68.4], matthews=[60.0, 0.0, 0.0]),
         "in 2 of 3 runs every row gets the same answer, so the mean is meaningless"),
        (column_figure([68.4, 68.4], matthews=[0.0, 0.0]),
         "every row gets the same answer, so the score is meaningless"),
    ],
    ids=["one of three", "all", "of fine-tunings", "old, one run", "old, three runs", "old, Matthews", "old, all"],
)  # fmt: skip
def test_the_number_of_runs_with_one_answer(figure, clause):
    column = {"key": "mrpc", "title": "MRPC", "task": "mrpc", "kind": "classification", "metric": "accuracy"}
    column["splits"] = ["validation"]
    model = {"name": "here", "columns": {"mrpc": figure.to_dict()}}
    summary = Evaluation.read({"preset": "quick", "columns": [column], "models": [model]})
    assert only_answer_notes(summary) == [f"‡ here on MRPC: {clause}."]
    [score] = scores_of_model(summary.models[0], summary).rows
    assert score.one_answer == f"MRPC: {clause}."

    [highlight] = evaluation_highlights(SimpleNamespace(summary=summary))
    runs, _, _ = clause.partition("every row")
    assert highlight.value == "–"
    assert highlight.detail == f"{rounded(figure.mean, 1)} is meaningless, since {runs}all rows get one answer"
    assert column_figure([84.1, 83.8]).meaningless_runs == (0, 2)


def test_models_of_an_evaluation_are_not_drawn(copied, page_of):
    folder = copied("large-evaluation")
    path = folder / "evaluation_table.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    student = table["models"][-1]
    collapsed = copy.deepcopy(student)
    for figure in collapsed["columns"].values():
        figure["only_answer"] = "no"
    table["models"] = [*[student] * 4, collapsed]
    path.write_text(json.dumps(table), encoding="utf-8")
    blocks = [block for section in page_of(folder).parts[0].sections for block in section.blocks]
    assert len(figures_of(blocks)["Quality of models"].drawing.rows) == 4
